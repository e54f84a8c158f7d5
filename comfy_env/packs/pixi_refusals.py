"""What of a pixi manifest needs pixi itself: found and told by name before anything is made."""

from __future__ import annotations

from comfy_env.packs.pixi_manifest import Keys, Manifest

_HINT = "install pixi and put it on PATH, or leave it out of the manifest"

_ROOT = frozenset({"$schema", "workspace", "project", "feature", "environments"})
_FEATURE = frozenset({
    "dependencies", "constraints", "pypi-dependencies", "pypi-options", "target", "activation", "tasks", "system-requirements", "channels",
    "platforms", "channel-priority", "solve-strategy",
})
_ENVIRONMENT = frozenset({"features", "no-default-feature"})
_TARGET = frozenset({"dependencies", "constraints", "pypi-dependencies", "activation", "tasks"})
_OPTIONS = frozenset({"index-url", "extra-index-urls", "find-links", "no-build"})
_OPTIONS_SO = {
    "index-strategy": "first-index", "prerelease-mode": "if-necessary-or-explicit", "no-binary": False, "no-build-isolation": False,
    "skip-wheel-filename-check": False,
}
_WORKSPACE = frozenset({
    "name", "version", "description", "authors", "license", "license-file", "readme", "homepage", "repository", "documentation", "channels",
    "platforms", "channel-priority", "solve-strategy", "requires-pixi", "pypi-options", "dependencies", "conda-pypi-map", "preview",
})


def refuse(manifest: Manifest, environment: str, parts: tuple[Keys, ...]) -> None:
    """Raise PlanError for the first thing of the environment that needs pixi itself."""
    _only(manifest, (), _ROOT | _FEATURE)
    _only(manifest, manifest.workspace, _WORKSPACE)
    _options(manifest, (*manifest.workspace, "pypi-options"))
    at = ("environments", environment)
    if isinstance(manifest.get(at), dict):
        _only(manifest, at, _ENVIRONMENT | _FEATURE)
    for part in parts:
        _part(manifest, part)


def _part(manifest: Manifest, part: Keys) -> None:
    if part[:1] == ("feature",):
        _only(manifest, part, _FEATURE)
    for target in manifest.table((*part, "target")):
        _only(manifest, (*part, "target", target), _TARGET)
    _options(manifest, (*part, "pypi-options"))


def _options(manifest: Manifest, at: Keys) -> None:
    usual = {key for key, value in manifest.table(at).items() if key in _OPTIONS_SO and value in (_OPTIONS_SO[key], [])}
    _only(manifest, at, _OPTIONS | usual)


def _only(manifest: Manifest, at: Keys, known: frozenset[str] | set[str]) -> None:
    for key in manifest.table(at):
        if key not in known:
            raise manifest.problem((*at, key), f"{'.'.join((*at, key))} needs pixi itself", _HINT)
