"""The public plan of an environment, made by hand or read from what a pack declares.

A pack declares environments in the `[tool.comfy-env]` table of its `pyproject.toml`, else in the older `comfy-env.toml`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from packaging.specifiers import SpecifierSet

from comfy_env import __contract__, values
from comfy_env.errors import PlanError
from comfy_env.packs import document as documents
from comfy_env.packs import identity, legacy, pixi_manifest, table
from comfy_env.packs.fields import Indexes

_FIELDS = {"env": "variables", "allow-source-builds": "allow_source_builds"}
Plan = TypeVar("Plan", bound=values.EnvPlan)


class EnvPlan(values.EnvPlan):
    """What an environment must be."""

    @classmethod
    def from_pack(cls, folder: str | Path) -> tuple[EnvPlan, ...]:
        """Return the plans a pack declares; raises PlanError with file and line.

        A pack that declares none but has a pixi manifest is that manifest's default environment: asking for its plan is
        the declaration.
        """
        return tuple(_plan(cls, declared, pack) for declared, pack in _read(Path(folder)))


def declares_envs(folder: str | Path) -> bool:
    """Return whether a pack declares environments at all; raises PlanError where its `pyproject.toml` cannot be read."""
    folder = _folder(Path(folder))
    return _has_table(folder) or legacy.declares(folder)


def env_names(folder: str | Path) -> dict[str, str]:
    """Return the name each environment of a pack has in its declaration, '' for one without, by the plan's key."""
    return {identity.key(pack, declared.name): declared.name for declared, pack in _read(Path(folder))}


def is_pack(folder: Path) -> bool:
    """Return whether the folder is a pack's, by the files that could declare an environment."""
    return any((folder / name).is_file() for name in (documents.FILE, pixi_manifest.FILE)) or legacy.declares(folder)


def _has_table(folder: Path) -> bool:
    return (folder / documents.FILE).exists() and table.declares(documents.read(folder))


def _folder(given: Path) -> Path:
    folder = given.parent if given.name == documents.FILE else given
    if not folder.is_dir():
        raise PlanError(f"there is no folder {folder}", hint="name the folder of the pack, the one with its pyproject.toml")
    return folder.resolve()


def _read(given: Path) -> list[tuple[table.Declared, values.PackId]]:
    folder = _folder(given)
    pyproject = folder / documents.FILE
    document = documents.read(folder) if pyproject.exists() or not is_pack(folder) else documents.Document(pyproject, {}, {})
    pack = identity.identify(document)
    return [(declared, pack) for declared in _declared(document)]


def _declared(document: documents.Document) -> tuple[table.Declared, ...]:
    folder = document.file.parent
    if table.declares(document):
        return table.read(document)
    if legacy.declares(folder):
        return tuple(table.Declared(env.name, env.values, env.source) for env in legacy.envs(folder))
    manifest = pixi_manifest.find(folder)
    if manifest is not None:
        return (table.Declared("", {"backend": "pixi"}, str(manifest.file)),)
    raise PlanError(
        f"{document.file} declares no environment",
        hint='add a table: [tool.comfy-env] with python = "3.10" and dependencies = ["numpy<2"]',
    )


def _plan(kind: type[Plan], declared: table.Declared, pack: values.PackId) -> Plan:
    fields: dict[str, Any] = {_FIELDS.get(key, key): value for key, value in declared.values.items()}
    given = fields.get("indexes", ())
    if isinstance(given, Indexes):
        fields |= {"indexes": given.extra, "dependencies": (*fields.get("dependencies", ()), *given.cuda)}
    api = fields.get("api", "")
    if api and not SpecifierSet(api).contains(str(__contract__)):
        raise PlanError(
            f"{declared.source}: pack {pack.id} {pack.version} wants comfy_env API {api}, this one offers {__contract__}",
            hint="update comfy_env, or take a version of the pack that fits" + (f": {pack.url}" if pack.url else ""),
        )
    return kind(key=identity.key(pack, declared.name), root=pack.folder, pack=pack, source=declared.source, **fields)
