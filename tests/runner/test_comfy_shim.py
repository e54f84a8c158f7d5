"""Packs find the few `comfy` modules they import, unless a real ComfyUI is there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import comfy_env

PACKAGE = Path(comfy_env.__file__).parent
START = f"""
import sys, types
package = types.ModuleType("comfy_env"); package.__path__ = [{str(PACKAGE)!r}]; sys.modules["comfy_env"] = package
from comfy_env.worker import comfy as shim
"""


@pytest.fixture
def say(interpreters):
    """`say(code, python)` runs code after the worker's package was made importable, and returns what it printed."""

    def run(code: str, python: str = "", roots: tuple[str, ...] = ()) -> str:
        path = interpreters[python] if python else next(iter(interpreters.values()))
        program = f"import sys\nsys.path[:0] = {list(roots)!r}\n" + START + code
        done = subprocess.run([str(path), "-I", "-c", program], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_a_pack_imports_the_progress_bar_on_every_python(say, interpreters):
    code = """shim.install()
from comfy.utils import ProgressBar
import comfy.model_management as m
print(ProgressBar(3).total, m.get_torch_device())"""
    assert {python: say(code, python) for python in interpreters} == dict.fromkeys(interpreters, "3 cpu")


def test_a_progress_bar_counts_like_comfyuis_own(say):
    code = """shim.install()
from comfy.utils import ProgressBar
from comfy_env.worker.comfy import utils
told = []
utils.report_progress = lambda value, total, node="", preview=None: told.append((value, total, node, preview))
bar = ProgressBar(10, node_id="7")
bar.update(3); bar.update(4); bar.update_absolute(99); bar.update_absolute(1, 20, "picture")
print(told)"""
    assert say(code) == str([(3, 10, "7", None), (7, 10, "7", None), (10, 10, "7", None), (1, 20, "7", "picture")])


def test_a_progress_bar_outside_a_call_is_harmless(say):
    assert say("shim.install()\nfrom comfy.utils import ProgressBar\nbar = ProgressBar(3)\nbar.update(2)\nprint(bar.current)") == "2"


def test_a_real_comfy_is_left_alone(say, tmp_path):
    (tmp_path / "comfy").mkdir()
    (tmp_path / "comfy" / "utils.py").write_text("class ProgressBar: real = True\n", encoding="utf-8")
    code = "print(shim.install())\nfrom comfy.utils import ProgressBar\nprint(ProgressBar.real)"
    assert say(code, roots=(str(tmp_path),)).split() == ["False", "True"]


def test_it_is_installed_once(say):
    assert say("print(shim.install(), shim.install())") == "True False"


@pytest.mark.parametrize("module", ["utils", "model_management"])
def test_a_name_that_needs_torch_says_so(say, module):
    code = f"""shim.install()
try:
    from comfy.{module} import common_upscale
except ImportError as error:
    print(error)"""
    assert say(code) == f"comfy.{module}.common_upscale needs torch and ComfyUI in this environment; this worker has neither"


def test_nothing_is_interrupted_outside_a_call(say):
    code = """shim.install()
import comfy.model_management as m
m.throw_exception_if_processing_interrupted()
print(m.processing_interrupted())"""
    assert say(code) == "False"
