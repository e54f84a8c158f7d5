"""Nodes of an isolated pack in a ComfyUI against the same nodes without isolation: a call of nothing, and a 192 MiB image.

`COMFY_ENV_COMFYUI` names a checkout of ComfyUI, `COMFY_ENV_COMFYUI_PYTHON` the Python of a venv that has its requirements and this
package.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests" / "comfyui"
ROUNDS = 5
HOW = "set COMFY_ENV_COMFYUI to a checkout of ComfyUI and COMFY_ENV_COMFYUI_PYTHON to a Python with its requirements and this package"
REGISTER = "from comfy_env import register_nodes\nNODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS = register_nodes()\n"
NODES = """
import torch


class {prefix}Make:
    CATEGORY, FUNCTION, RETURN_TYPES = "bench", "run", ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {{"required": {{"seed": ("INT",)}}}}

    def run(self, seed):
        return (torch.full((4, 2048, 2048, 3), float(seed)),)


class {prefix}Invert:
    CATEGORY, FUNCTION, RETURN_TYPES = "bench", "run", ("IMAGE",)

    @classmethod
    def INPUT_TYPES(cls):
        return {{"required": {{"image": ("IMAGE",)}}}}

    def run(self, image):
        return (1.0 - image,)


class {prefix}Sink:
    CATEGORY, FUNCTION, RETURN_TYPES, OUTPUT_NODE = "bench", "run", (), True

    @classmethod
    def INPUT_TYPES(cls):
        return {{"required": {{"image": ("IMAGE",)}}}}

    def run(self, image):
        return {{"ui": {{"text": [str(float(image[0, 0, 0, 0]))]}}}}


class {prefix}Nothing:
    CATEGORY, FUNCTION, RETURN_TYPES = "bench", "run", ("INT",)

    @classmethod
    def INPUT_TYPES(cls):
        return {{"required": {{"value": ("INT",)}}}}

    def run(self, value):
        return (value,)


NODE_CLASS_MAPPINGS = {{name: cls for name, cls in list(globals().items()) if name.startswith("{prefix}")}}
"""
CALLS = """
import time
from comfy_env.comfyui.host import host
from comfy_execution.utils import CurrentNodeContext
cls = drive.nodes.NODE_CLASS_MAPPINGS["IsoNothing"]
node, env = cls(), next(iter(host().isolated.values()))

def sorted_times(act, count=3000):
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        act()
        times.append(time.perf_counter() - begun)
    return sorted(times)[count // 2]

with CurrentNodeContext("bench", "1", 0):
    answer = [sorted_times(lambda: node.run(value=1)), sorted_times(lambda: host().pool.call(env.plan, "operator:not_", 0))]
"""


def facts(rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Return one round of the rows that need a ComfyUI; isolated and plain prompts alternate."""
    root, python = os.environ.get("COMFY_ENV_COMFYUI", ""), os.environ.get("COMFY_ENV_COMFYUI_PYTHON", sys.executable)
    if not root:
        return [{"cannot": HOW}]
    try:
        with _host(root, python) as ask:
            return _asked(ask, rounds)
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        return [{"failed": f"{type(error).__name__}: {error}"[:200]}]


def _asked(ask: Callable[..., Any], rounds: int) -> list[dict[str, Any]]:
    ask("run", prompt=_prompt("Iso", 0))
    ask("run", prompt=_prompt("Plain", 0))
    proxy, bare = ask("exec", code=CALLS)
    times: dict[str, list[float]] = {"Iso": [], "Plain": []}
    for number in range(1, rounds + 1):
        for prefix in times:
            times[prefix].append(ask("run", prompt=_prompt(prefix, number))["seconds"])
    isolated, plain = (statistics.median(times[prefix]) for prefix in ("Iso", "Plain"))
    return [
        {"row": "proxy", "value": proxy},
        {"row": "proxy", "note": f"of these {(proxy - bare) * 1e6:.0f} µs beside the pool's own call"},
        {"row": "proxy_192", "value": isolated - plain},
        {"row": "proxy_192", "note": f"{isolated * 1e3:.0f} ms isolated, {plain * 1e3:.0f} ms plain; three crossings"},
    ]


def _prompt(prefix: str, seed: int) -> dict[str, Any]:
    return {
        "1": {"class_type": f"{prefix}Make", "inputs": {"seed": seed}},
        "2": {"class_type": f"{prefix}Invert", "inputs": {"image": ["1", 0]}},
        "3": {"class_type": "PlainSink", "inputs": {"image": ["2", 0]}},
    }


@contextlib.contextmanager
def _host(root: str, python: str) -> Iterator[Any]:
    with tempfile.TemporaryDirectory(prefix="comfy-env-bench-") as folder:
        packs = _packs(Path(folder))
        folders = {f"COMFY_ENV_{name.upper()}": f"{folder}/{name}" for name in ("envs", "runtime", "logs")}
        environ = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"), **folders}
        snapshot = [python, "-m", "comfy_env.cli", "snapshot", str(packs[0]), "--comfyui", root]
        subprocess.run(snapshot, env=environ, check=True, stdout=subprocess.DEVNULL)
        command = [python, str(TESTS / "drive.py"), root, folder, *map(str, packs)]
        host = subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert host.stdin is not None and host.stdout is not None
        host.stdout.readline()

        def ask(do: str, **arguments: Any) -> Any:
            assert host.stdin is not None and host.stdout is not None
            host.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            host.stdin.flush()
            return json.loads(host.stdout.readline())["answer"]

        try:
            yield ask
        finally:
            host.stdin.close()
            host.wait(60)
            host.stdout.close()


def _packs(folder: Path) -> list[Path]:
    """Write the same nodes as an isolated pack, whose workers run on the host's own Python, and as a plain one."""
    made = []
    for prefix, start in (("Iso", REGISTER), ("Plain", "from .nodes import NODE_CLASS_MAPPINGS\n")):
        pack = folder / "custom_nodes" / f"bench_{prefix.lower()}"
        pack.mkdir(parents=True)
        (pack / "__init__.py").write_text(start)
        (pack / "nodes.py").write_text(NODES.format(prefix=prefix))
        made.append(pack)
    (made[0] / "here.py").write_text("from comfy_env.backends.local import LocalBackend\n\nbackend = LocalBackend()\n")
    offer = '[project.entry-points."comfy_env.backends"]\nbench = "here:backend"\n'
    (made[0] / "pyproject.toml").write_text(f'[project]\nname = "bench"\n{offer}[tool.comfy-env]\nbackend = "bench"\n')
    return made

