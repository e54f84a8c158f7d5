"""Where plugins come from: our own table, installed packages' entry points, a node pack's own `pyproject.toml`.

Nothing is imported before somebody asks for the plugin by name.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comfy_env.errors import BackendError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BACKENDS = "comfy_env.backends"
WRAPPERS = "comfy_env.wrappers"
OBSERVERS = "comfy_env.observers"

OURS = "comfy-env"
BUILT_IN: Mapping[str, str] = {
    "venv": "comfy_env.backends.venv:backend",
    "pixi": "comfy_env.backends.pixi:backend",
    "in-process": "comfy_env.backends.inprocess:backend",
}
"""The backends of our own setup.cfg: they resolve also where the package is used from a checkout, not installed."""


@dataclass(frozen=True)
class Offer:
    """A plugin somebody offers under a name.

    ``target`` is "module:object", or a module alone; ``pack`` is the folder of the only pack that may use it.
    """

    name: str
    target: str
    owner: str
    pack: Path | None = None
    value: Any = field(default=None, compare=False)

    def load(self) -> Any:
        """Return the object; raises BackendError naming owner and target when it cannot be imported."""
        if self.value is not None:
            return self.value
        module, _, path = self.target.partition(":")
        try:
            found: Any = importlib.import_module(f"{_pack_namespace(self.pack)}.{module}" if self.pack else module)
            for part in filter(None, path.split(".")):
                found = getattr(found, part)
        except Exception as problem:  # importing runs the plugin's own code: whatever that raises names the plugin
            raise BackendError(
                f"{self.name!r} of {self.owner} cannot be loaded from {self.target!r}: {type(problem).__name__}: {problem}",
                hint=f"the module is looked for in {self.pack} only; import its neighbours relatively" if self.pack else "",
            ) from problem
        return found


def installed(group: str) -> Iterator[Offer]:
    """Yield what installed packages offer in a group, each offer once."""
    seen = set()
    for entry in importlib.metadata.entry_points(group=group):
        owner = getattr(entry.dist, "name", None) or "an unnamed package"
        offer = Offer(entry.name, entry.value, owner)
        if offer not in seen:
            seen.add(offer)
            yield offer


def built_in() -> Iterator[Offer]:
    """Yield our own backends as an installed comfy-env offers them."""
    return (Offer(name, target, OURS) for name, target in BUILT_IN.items())


def of_pack(folder: Path) -> tuple[Offer, ...]:
    """Return the backends that a pack's pyproject.toml declares; nothing where there is no such file or table."""
    file = folder / "pyproject.toml"
    if not file.is_file():
        return ()
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BackendError(f"{file} cannot be read: {problem}") from problem
    project = document.get("project", {})
    table = project.get("entry-points", {}).get(BACKENDS, {})
    owner = f"pack {project.get('name') or folder.name} ({folder})"
    return tuple(Offer(name, str(target), owner, folder) for name, target in table.items())


def owners(offers: Iterable[Offer]) -> str:
    """Name the owners of some offers for people."""
    return " and ".join(f"{offer.owner} ({offer.target})" for offer in offers)


def _pack_namespace(folder: Path | None) -> str:
    """Return the name of a package whose only content is a pack's folder, so that no pack's module shadows another's.

    The folder itself is not run as a package: a pack's `__init__.py` is written for ComfyUI, not for this.
    """
    name = f"comfy_env_pack_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"
    if name not in sys.modules:
        package = types.ModuleType(name, f"Modules of the node pack in {folder}.")
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    return name


Find = Callable[[str], Iterable[Offer]]
