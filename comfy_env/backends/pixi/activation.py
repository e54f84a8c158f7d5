"""What activating a conda environment changes, found out once; a worker gets that instead of a shell in between."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from comfy_env.envs import tools
from comfy_env.errors import BuildFailed

FILE = "activation.json"
SECONDS = 60.0
_OURS = "COMFY_ENV_"
_NOT_MEANT = re.compile(r"_|SHLVL|PWD|OLDPWD|PS1|PATH|BASH.*|PIXI_IN_SHELL|PIXI_EXE|PIXI_PROMPT")
_DUMP = 'while IFS= read -r _name; do printf \'%s=%s\\0\' "$_name" "${!_name}"; done < <(compgen -e) > "$_COMFY_ENV_OUT"\n'


@dataclass(frozen=True)
class Activation:
    """Folders that go in front of PATH, variables that are set, and those that are taken away."""

    path: tuple[str, ...] = ()
    set: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()

    def applied(self, variables: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
        """Return a worker's variables with the environment active; what its plan sets itself stays."""
        kept = {name for name in variables if name in asked or name.startswith(_OURS)}
        changed = {name: value for name, value in variables.items() if name in kept or name not in self.unset}
        changed.update({name: value for name, value in self.set if name not in kept})
        others = [folder for folder in variables.get("PATH", os.defpath).split(os.pathsep) if folder not in self.path]
        return {**changed, "PATH": os.pathsep.join([*self.path, *others])}


def between(before: Mapping[str, str], after: Mapping[str, str], whole: bool = True) -> Activation:
    """Return what changed. ``whole``: ``after`` is a whole environment, so what it lacks was taken away."""
    old = before.get("PATH", "").split(os.pathsep)
    path = tuple(folder for folder in after.get("PATH", "").split(os.pathsep) if folder and folder not in old)
    changed = {name: value for name, value in after.items() if before.get(name) != value and not _NOT_MEANT.fullmatch(name)}
    gone = tuple(sorted(name for name in before if whole and name not in after and not _NOT_MEANT.fullmatch(name)))
    return Activation(path, tuple(sorted(changed.items())), gone)


def capture(
    prefix: Path, before: Mapping[str, str], scripts: tuple[Path, ...] = (), more: Mapping[str, str] | None = None, env: str = ""
) -> tuple[Activation, str]:
    """Return what activating a prefix changes in the given variables, and what its scripts said; raises BuildFailed.

    ``scripts`` run after the packages' own; ``more`` is set at the end and may name other variables.
    """
    start = {**before, **_static(prefix), "PATH": os.pathsep.join([*map(str, _folders(prefix)), before.get("PATH", os.defpath)])}
    run = [*sorted((prefix / "etc" / "conda" / "activate.d").glob("*.sh")), *scripts]
    lines = [f". {_quoted(str(script))}\n" for script in run]
    lines += [f"export {name}={_expanded(value)}\n" for name, value in (more or {}).items()]
    after, said = _run(lines, start, env) if lines else (start, "")
    return between(before, after), said


def _static(prefix: Path) -> dict[str, str]:
    """Return what conda sets itself and what packages ask for in files."""
    found = {"CONDA_PREFIX": str(prefix), "CONDA_SHLVL": "1", "CONDA_DEFAULT_ENV": prefix.name}
    for file in [*sorted((prefix / "etc" / "conda" / "env_vars.d").glob("*.json")), prefix / "conda-meta" / "state"]:
        if file.is_file():
            said: Any = json.loads(file.read_bytes())
            values = said.get("env_vars", {}) if file.name == "state" else said
            found.update({str(name): str(value) for name, value in values.items()})
    return found


def _folders(prefix: Path) -> list[Path]:
    if os.name != "nt":
        return [prefix / "bin"]
    library = prefix / "Library"
    return [prefix, library / "mingw-w64" / "bin", library / "usr" / "bin", library / "bin", prefix / "Scripts"]


def _run(lines: list[str], start: Mapping[str, str], env: str) -> tuple[dict[str, str], str]:
    shell = shutil.which("bash")
    if shell is None:
        raise BuildFailed("its activation scripts need bash, which is not on PATH", env=env, hint="install bash")
    with tempfile.TemporaryDirectory(prefix="comfy-env-activate-") as nowhere:
        script, out = Path(nowhere, "activate.sh"), Path(nowhere, "variables")
        script.write_text("".join(lines) + _DUMP, encoding="utf-8", errors="surrogateescape")
        answer = tools.ask([shell, "--noprofile", "--norc", script], SECONDS, {**start, "_COMFY_ENV_OUT": str(out)}, Path(nowhere))
        if answer.trouble or not out.is_file():
            raise BuildFailed(f"its activation scripts: {answer.trouble or 'they ended early'}", env=env, output=_lines(answer)[-40:])
        pairs = [entry.partition("=") for entry in out.read_bytes().decode("utf-8", "surrogateescape").split("\0") if entry]
    return {name: value for name, _, value in pairs if name not in ("_COMFY_ENV_OUT", "_name")}, "\n".join(_lines(answer))


def _lines(answer: tools.Answer) -> tuple[str, ...]:
    return tuple(line for line in (answer.out + answer.err).splitlines() if line.strip())


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _expanded(value: str) -> str:
    """Return a value in which the shell fills in `$NAME` and runs nothing."""
    return '"' + re.sub(r'(["\\`]|\$(?=\())', r"\\\1", value) + '"'


def write(folder: Path, found: Activation) -> None:
    (folder / FILE).write_text(json.dumps(asdict(found), indent=1), encoding="utf-8")


def read(folder: Path) -> Activation | None:
    """Return what was written for a build, None where nothing was."""
    file = folder / FILE
    if not file.is_file():
        return None
    said = json.loads(file.read_bytes())
    return Activation(tuple(said["path"]), tuple((name, value) for name, value in said["set"]), tuple(said["unset"]))
