"""Hosts with packs in them: the fake one always, a real checkout too where COMFY_ENV_COMFYUI names one."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REAL = os.environ.get("COMFY_ENV_COMFYUI", "")
PYTHON = os.environ.get("COMFY_ENV_COMFYUI_PYTHON", sys.executable)
REGISTER = "from comfy_env import register_nodes\n\nNODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS = register_nodes()\n"


BACKEND = """
from comfy_env.backends.local import LocalBackend

backend = LocalBackend()
"""


class Host:
    """A host in a process of its own, driven by commands."""

    def __init__(self, root, python, base, packs, variables):
        command = [python, str(HERE / "drive.py"), str(root), str(base), *map(str, packs)]
        environ = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", **variables}
        self.log = []
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, cwd=base)
        self._reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self._reader.start()
        self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(30)
            self._reader.join(5)
            raise AssertionError("the host ended:\n" + "".join(self.log[-60:]))
        return json.loads(line)

    def __getattr__(self, name):
        def ask(**arguments):
            self.process.stdin.write(json.dumps({"do": name, **arguments}) + "\n")
            self.process.stdin.flush()
            reply = self._answer()
            assert "failed" not in reply, reply["failed"]
            return reply["answer"]

        return ask

    def run_ok(self, prompt, **more):
        result = self.run(prompt=prompt, **more)
        assert result["ok"], json.dumps(result, indent=1, default=repr)
        return result

    def texts(self, prompt, **more):
        """What the output nodes showed, by node id."""
        return {id: shown["text"] for id, shown in self.run_ok(prompt, **more)["outputs"].items()}

    def python(self, code):
        return self.exec(code=code)

    def as_node(self, code, beside=None):
        return self.exec_as_node(code=code, beside=beside)

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()
        self._reader.join(10)
        self.process.stderr.close()


def hosts():
    yield pytest.param((HERE / "host", sys.executable), id="fake")
    if REAL:
        yield pytest.param((Path(REAL), PYTHON), id="real", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=list(hosts()))
def core(request):
    """(folder of the host's sources, its interpreter)."""
    return request.param


class Packs:
    """Writes packs into a host's folder of custom nodes, isolated in this interpreter's own environment or not at all."""

    def __init__(self, folder):
        self.folder = folder

    def isolated(self, name, nodes, table="", init=REGISTER, **files):
        """Write a pack whose workers run on the host's own interpreter, unless its table says otherwise."""
        here = f'[project.entry-points."comfy_env.backends"]\n{name} = "here:backend"\n'
        project = f'[project]\nname = "{name}"\n\n{here}\n[tool.comfy-env]\n' + (table or f'backend = "{name}"\n')
        return self._write(name, init, nodes, project, {"here__py": BACKEND, **files})

    def plain(self, name, nodes, **files):
        return self._write(name, "from .nodes import *\nfrom .nodes import NODE_CLASS_MAPPINGS\n", nodes, "", files)

    def undeclared(self, name, nodes):
        """Write a pack that registers, but declares no environment."""
        return self._write(name, REGISTER, nodes, "", {})

    def _write(self, name, init, nodes, project, files):
        pack = self.folder / name
        pack.mkdir(parents=True)
        (pack / "__init__.py").write_text(init, encoding="utf-8")
        (pack / "nodes.py").write_text(nodes, encoding="utf-8")
        if project:
            (pack / "pyproject.toml").write_text(project, encoding="utf-8")
        for file, text in files.items():
            (pack / file.replace("__", ".")).write_text(text, encoding="utf-8")
        return pack


@pytest.fixture(scope="module")
def place(tmp_path_factory, core):
    """The base folder of a host."""
    base = tmp_path_factory.mktemp("comfyui")
    for name in ("input", "output", "temp", "user", "models/loras", "models/checkpoints", "custom_nodes"):
        (base / name).mkdir(parents=True)
    return base


@pytest.fixture(scope="module")
def packs(place):
    return Packs(place / "custom_nodes")


def describe(python, root, folders, variables):
    """Describe packs as `comfy-env build` does after a build."""
    command = [python, "-m", "comfy_env.cli", "snapshot", *map(str, folders), "--comfyui", str(root)]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}   # as for hosts: only a worker could write here
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def start(core, place):
    """`start(*packs, snapshots=True, **variables)` starts a host with these packs; all are ended with the module."""
    root, python = core
    started = []

    def begin(*folders, snapshots=True, **variables):
        settings = {**{f"COMFY_ENV_{name}": str(place / name.lower()) for name in ("ENVS", "RUNTIME", "LOGS")}, **variables}
        if snapshots:
            describe(python, root, folders, settings)
        host = Host(root, python, place, folders, settings)
        started.append(host)
        return host

    yield begin
    for host in started:
        host.close()
