"""One environment of a pixi manifest on one platform, as far as it can be made without pixi.

What cannot is refused by name, with file and line: a half-understood manifest would give an environment that merely
looks like the author's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from comfy_env.packs import pixi_specs, requirements
from comfy_env.packs.pixi_manifest import Keys, Manifest, features
from comfy_env.packs.pixi_platforms import needs_of, targets
from comfy_env.packs.pixi_refusals import refuse
from comfy_env.packs.redact import has_secret
from comfy_env.packs.wrong import Wrong

PRIORITIES = ("strict", "flexible", "disabled")
STRATEGIES = ("highest", "lowest", "lowest-direct")


@dataclass(frozen=True)
class PixiEnv:
    """What the environment must hold. ``needs`` are the virtual packages (CUDA, glibc, …) the machine must offer."""

    name: str
    platform: str
    channels: tuple[str, ...]
    conda: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    pypi: tuple[str, ...] = ()
    index_url: str = ""
    indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    needs: tuple[tuple[str, str], ...] = ()
    priority: str = "strict"
    strategy: str = "highest"


def read(manifest: Manifest, name: str, platform: str, source_builds: bool = False) -> PixiEnv:
    """Return the environment; raises PlanError, and PlatformMissing where the manifest is not for the platform."""
    parts = features(manifest, name)
    refuse(manifest, name, parts)
    reader = _Reader(manifest, parts, platform, source_builds)
    pypi = reader.pypi()
    return PixiEnv(
        name, platform, reader.channels(), reader.conda("dependencies"), reader.conda("constraints"),
        tuple(line for line, _ in pypi), reader.index_url(), reader.indexes(pypi), reader.find_links(),
        reader.scripts(), reader.variables(), needs_of(manifest, parts, platform),
        reader.choice("channel-priority", PRIORITIES), reader.choice("solve-strategy", STRATEGIES),
    )


class _Reader:
    def __init__(self, manifest: Manifest, parts: tuple[Keys, ...], platform: str, source_builds: bool) -> None:
        self._manifest = manifest
        self._parts = parts
        self._targets = targets(platform)
        self._source_builds = source_builds

    def conda(self, kind: str) -> tuple[str, ...]:
        found = [self._spec(keys, lambda name, value: pixi_specs.conda(name, self._pooled(value, name))) for keys in self._each(kind)]
        if kind == "dependencies" and not any(keys[-1] == "python" for keys in self._each(kind)):
            asked = self._project().get("requires-python")
            found += [pixi_specs.conda("python", asked)] if asked else []
        return tuple(dict.fromkeys(found))

    def pypi(self) -> tuple[tuple[str, str], ...]:
        """Return requirements and the index each names."""
        own = [self._spec(keys, lambda name, value: pixi_specs.pypi(name, value, self._source_builds))
               for keys in self._each("pypi-dependencies")]
        listed = self._project().get("dependencies") or []
        return tuple(dict.fromkeys([*own, *((self._line(line), "") for line in listed)]))

    def channels(self) -> tuple[str, ...]:
        """Return the channels: the features' before the workspace's, a higher priority before a lower one."""
        shared = (*self._manifest.workspace, "channels")
        places = [(*part, "channels") for part in self._parts if part] + [shared]
        listed = [(keys, entry) for keys in places for entry in self._manifest.get(keys) or []]
        ranked = sorted((_channel(entry) for _, entry in listed), key=lambda found: -found[1])
        names = tuple(dict.fromkeys(name for name, _ in ranked))
        for name in names:
            if not name or has_secret(name):
                raise self._manifest.problem(shared, "a channel must be a name or a URL without credentials")
        if not names:
            raise self._manifest.problem(shared, "there is no channel", 'write channels = ["conda-forge"]')
        return names

    def scripts(self) -> tuple[str, ...]:
        return tuple(str(script) for keys in self._places("activation", "scripts") for script in self._manifest.get(keys) or [])

    def variables(self) -> tuple[tuple[str, str], ...]:
        found: dict[str, str] = {}
        for keys in self._places("activation", "env"):
            found.update({name: str(value) for name, value in (self._manifest.get(keys) or {}).items()})
        return tuple(found.items())

    def index_url(self) -> str:
        found = [self._manifest.get(keys) for keys in self._options("index-url")]
        given = [url for url in found if url]
        return self._checked(self._options("index-url")[-1], given[-1]) if given else ""

    def indexes(self, pypi: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
        extra = [self._checked(keys, url) for keys in self._options("extra-index-urls") for url in self._manifest.get(keys) or []]
        return tuple(dict.fromkeys([*extra, *(index for _, index in pypi if index)]))

    def find_links(self) -> tuple[str, ...]:
        """Return the folders of wheels, absolute; raises PlanError for a page of them."""
        listed = [(keys, entry) for keys in self._options("find-links") for entry in self._manifest.get(keys) or []]
        for keys, entry in listed:
            if not isinstance(entry, dict) or "path" not in entry:
                raise self._manifest.problem(keys, f"find-links = {entry!r} needs pixi itself", "name a folder, or install pixi")
        return tuple(str(self._manifest.file.parent / entry["path"]) for _, entry in listed)

    def choice(self, key: str, known: tuple[str, ...]) -> str:
        """Return the first part's word; raises PlanError for one that needs pixi itself."""
        places = [(*part, key) for part in self._parts if part] + [(*self._manifest.workspace, key)]
        for keys in places:
            value = self._manifest.get(keys)
            if value is not None and value not in known:
                raise self._manifest.problem(keys, f"{key} = {value!r} needs pixi itself", f"known are {', '.join(known)}")
            if value is not None:
                return str(value)
        return known[0]

    def _each(self, kind: str) -> Iterator[Keys]:
        """Yield where each entry of a kind of table stands; within a feature a target's entry replaces the general one."""
        for part in self._parts:
            last = {name: (*keys, name) for keys in self._of(part, kind) for name in self._manifest.table(keys)}
            yield from last.values()

    def _of(self, part: Keys, *kind: str) -> list[Keys]:
        return [(*part, *kind), *((*part, "target", target, *kind) for target in self._targets)]

    def _places(self, *kind: str) -> list[Keys]:
        """Return where a kind of thing may stand, what counts most last."""
        return [keys for part in reversed(self._parts) for keys in self._of(part, *kind)]

    def _options(self, key: str) -> list[Keys]:
        return [(*self._manifest.workspace, "pypi-options", key), *((*part, "pypi-options", key) for part in reversed(self._parts))]

    def _spec(self, keys: Keys, say: Callable[[str, Any], Any]) -> Any:
        try:
            return say(keys[-1], self._manifest.get(keys))
        except Wrong as wrong:
            raise self._manifest.problem(keys, wrong.what, wrong.hint or "install pixi and put it on PATH") from None

    def _pooled(self, value: Any, name: str) -> Any:
        if isinstance(value, dict) and value.get("workspace") is True:
            return self._manifest.table((*self._manifest.workspace, "dependencies")).get(name, "")
        return value

    def _line(self, line: Any) -> str:
        try:
            return requirements.check(str(line), self._source_builds)
        except Wrong as wrong:
            raise self._manifest.document.problem(("project", "dependencies"), wrong.what, wrong.hint) from None

    def _checked(self, keys: Keys, url: Any) -> str:
        try:
            return requirements.check_index(str(url))
        except Wrong as wrong:
            raise self._manifest.problem(keys, wrong.what, wrong.hint) from None

    def _project(self) -> dict[str, Any]:
        """Return `[project]` where the manifest lies in a `pyproject.toml` and the default feature takes part."""
        return self._manifest.document.table("project") if self._manifest.base and () in self._parts else {}


def _channel(entry: Any) -> tuple[str, int]:
    if isinstance(entry, dict):
        return str(entry.get("channel", "")), int(entry.get("priority") or 0)
    return str(entry), 0
