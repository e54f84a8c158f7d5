"""The guard, loaded as ComfyUI loads a node folder, in an interpreter that has the right, a wrong, or no comfy-env."""

import subprocess
import sys
from pathlib import Path

import pytest

GUARD = Path(__file__).resolve().parents[1] / "__init__.py"
LOAD = """
import importlib.util, logging, sys
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
spec = importlib.util.spec_from_file_location("custom_nodes.guard", {guard!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
assert module.NODE_CLASS_MAPPINGS == {{}} and module.NODE_DISPLAY_NAME_MAPPINGS == {{}}
assert {imported!r} or "comfy_env" not in sys.modules
"""


class Site:
    """A folder of installed packages, and what the guard says in it."""

    def __init__(self, folder):
        self.folder = folder

    def distribution(self, name="comfy-env", version="1.0", keywords=None, requires=()):
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Keywords: {keywords}"] if keywords else []
        lines += [f"Requires-Dist: {one}" for one in requires]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        return self

    def module(self, source):
        (self.folder / "comfy_env").mkdir(parents=True)
        (self.folder / "comfy_env" / "__init__.py").write_text(source)
        return self

    def ours(self):
        self.distribution(version="1!1.0.0", keywords="comfy-env-contract, comfyui")
        return self.module("__contract__ = 1\nraise SystemExit('not to be run')\n")

    def says(self, before="", imported=False):
        code = f"import sys; sys.path.insert(0, {str(self.folder)!r}); {before}\n" + LOAD.format(guard=str(GUARD), imported=imported)
        answer = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert answer.returncode == 0, answer.stderr
        return answer.stderr


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site-packages")


def test_the_right_one_is_passed_in_silence_and_is_not_run(site):
    assert site.ours().says() == ""


def test_nothing_installed_is_told_with_the_interpreter(site):
    told = site.says()
    assert told.startswith("ERROR") and "not installed" in told and sys.executable in told


def test_a_stranger_of_the_same_name_is_told_with_version_folder_and_who_asked(site):
    site.distribution(version="9.9.9", keywords="conda environments").module("x = 1\n")
    site.distribution("some-pack", requires=["Comfy_Env==9.9.9 ; python_version > '3'", "numpy"])
    told = site.says()
    assert told.startswith("ERROR")
    for word in ("9.9.9", str(site.folder), "another project", "some-pack", "pip uninstall comfy-env"):
        assert word in told


def test_a_stranger_whose_metadata_has_no_keywords_is_told(site):
    assert "another project" in site.distribution().module("").says()


def test_mixed_files_are_told(site):
    site.distribution(version="1!1.0.0", keywords="comfy-env-contract").module("VERSION = 2\n")
    assert "two projects were mixed" in site.says()


def test_a_module_that_is_no_python_is_told_as_mixed(site):
    site.distribution(keywords="comfy-env-contract").module("def (:\n")
    assert "two projects were mixed" in site.says()


def test_an_unknown_contract_is_told_with_both_numbers(site):
    site.distribution(keywords="comfy-env-contract").module("__contract__ = 7\n")
    assert "contract 7; contract 1 is wanted" in site.says()


def test_a_module_that_is_already_loaded_is_asked_itself(site):
    before = "import types; m = types.ModuleType('comfy_env'); m.__contract__ = 1; sys.modules['comfy_env'] = m"
    assert site.distribution(keywords="comfy-env-contract").says(before, imported=True) == ""


def test_a_checkout_on_the_path_without_metadata_is_right(site):
    assert site.module("__contract__ = 1\n").says() == ""


def test_the_message_is_a_box_nobody_overlooks(site):
    lines = site.says().splitlines()
    assert lines[1].startswith("!!!!!!!!!!") and lines[-1].startswith("!!!!!!!!!!")
