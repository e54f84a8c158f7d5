"""One venv per peer, outside the tree: made once from the ordinary package index, made anew when what it needs changes.

`COMFY_ENV_BENCH_VENVS` names another folder than the user's cache. torch and numpy are installed once, in the venv "base", which the
others see through a .pth file. Set `PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu` to be spared the CUDA build of torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from benchmarks.peers import BASE, CHECKOUT, Peer

STAMP = "bench-stamp.json"


class NotInstalled(Exception):
    """A peer's venv cannot be made; its text is the reason in one line."""


def folder() -> Path:
    """Return the folder of all venvs."""
    given = os.environ.get("COMFY_ENV_BENCH_VENVS")
    return Path(given) if given else Path(platformdirs.user_cache_dir("comfy-env", appauthor=False)) / "bench"


def python_of(name: str) -> Path:
    return folder() / name / "bin" / "python"


def packages_of(name: str) -> Path:
    return folder() / name / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def ensure(peer: Peer) -> Path:
    """Return the Python of a peer's venv, made first where it is missing or stale; raises NotInstalled."""
    _ensure("base", BASE, ())
    return _ensure(peer.key, peer.requires, (packages_of("base"),))


def wanted(requires: Sequence[str]) -> dict[str, object]:
    """Return what a venv's stamp must say for the venv to be used as it is; of a checkout its requirements count too."""
    own = (CHECKOUT / "setup.cfg").read_text(encoding="utf-8") if str(CHECKOUT) in requires else ""
    setup = hashlib.sha256(own.encode()).hexdigest()
    return {"python": sys.version, "executable": sys.executable, "requires": list(requires), "setup": setup}


def _ensure(name: str, requires: tuple[str, ...], sees: tuple[Path, ...]) -> Path:
    stamp = folder() / name / STAMP
    if not _is(stamp, wanted(requires)):
        sys.stderr.write(f"installing {name}: {' '.join(requires) or 'nothing beside torch'}\n")
        shutil.rmtree(folder() / name, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder() / name)])
        for number, path in enumerate(sees):
            (packages_of(name) / f"bench_{number}.pth").write_text(f"{path}\n")
        if requires:
            _run([str(python_of(name)), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requires])
        stamp.write_text(json.dumps(wanted(requires)))
    return python_of(name)


def _is(stamp: Path, facts: dict[str, object]) -> bool:
    return stamp.exists() and json.loads(stamp.read_text()) == facts


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if "ERROR" in line] or done.stdout.splitlines() or ["no output"]
        raise NotInstalled(lines[0].strip()[:200])


def version(peer: Peer) -> str:
    """Return the version that is installed for a peer, "" where it has none of its own."""
    if not peer.distribution:
        return ""
    program = f"import importlib.metadata as m; print(m.version({peer.distribution!r}))"
    done = subprocess.run([str(python_of(peer.key)), "-I", "-c", program], stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()
