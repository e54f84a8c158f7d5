"""Making an environment with a real pixi: its words are kept in the log, its lock beside the build."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from comfy_env.backends.pixi import activation, given, kept, manifest, prefixes, words
from comfy_env.backends.pixi.activation import Activation
from comfy_env.backends.pixi.making import Making
from comfy_env.envs import host_torch, paths, tools
from comfy_env.errors import BuildCancelled, BuildFailed
from comfy_env.packs.pixi_manifest import LOCK
from comfy_env.settings import Settings

_OUTDATED = "not up-to-date"
_CONFIG = "detached-environments = false\n"


def make(making: Making) -> tuple[Path, Activation]:
    """Make the environment and return its prefix and what activating it changes; raises BuildFailed."""
    (making.target / ".pixi").mkdir()
    (making.target / ".pixi" / "config.toml").write_text(_CONFIG, encoding="utf-8")
    if making.manifest is None:
        _from_plan(making)
    else:
        given.refuse_paths(making.manifest, making.environment)
        given.lay(making.manifest, making.target)
        _install(making)
    return prefixes.prefix_in(making.target, making.environment), _activation(making)


def _from_plan(making: Making) -> None:
    """Install from a manifest of our own, with the first wish for torch that can be had."""
    settled, wishes = making.settled(), host_torch.wishes(making.plan, making.settings)
    locked = kept.take(making)
    for number, wish in enumerate(wishes, start=1):
        for remark in wish.remarks:
            making.journal.say(remark)
        text = manifest.text(making.plan, settled, wish, making.sources)
        (making.target / manifest.FILE).write_text(text, encoding="utf-8")
        try:
            _install(making)
            return
        except BuildFailed as error:
            if number == len(wishes) or locked or isinstance(error, BuildCancelled):
                error.hint += f"; {kept.FORGET}" if locked else ""
                raise
            making.journal.say(f"not to be had: {error.message}")


def _install(making: Making) -> None:
    """Install what is locked; where the lock does not fit the manifest, the author's is followed, ours is made anew."""
    if not (making.target / LOCK).is_file():
        _run(making, "installing with pixi")
        return
    try:
        _run(making, "installing what is locked", "--locked")
    except BuildFailed as error:
        if isinstance(error, BuildCancelled) or _OUTDATED not in words.plain(error.output):
            raise
        _despite(making)


def _despite(making: Making) -> None:
    if making.manifest is not None:
        making.journal.say("the pack's lock does not fit its manifest; what it locks is installed")
        _run(making, "installing what is locked", "--frozen")
        return
    making.journal.say("the lock of the last build does not fit any more and is made anew")
    (making.target / LOCK).unlink()
    _run(making, "installing with pixi")


def _run(making: Making, what: str, *options: str) -> None:
    argv = [making.provider.path, "install", *_common(making), *options]
    try:
        making.journal.run(what, argv, _variables(making.variables, making.settings), making.target)
    except BuildCancelled:
        raise
    except BuildFailed as error:
        raise words.named(error) from None


def _common(making: Making) -> list[str]:
    file = making.manifest.file.name if making.manifest else manifest.FILE
    return ["--manifest-path", str(making.target / file), "--environment", making.environment]


def _activation(making: Making) -> Activation:
    making.journal.say("asking pixi what activating changes")
    before = making.worker_variables()
    argv = [making.provider.path, "shell-hook", "--json", *_common(making), "--frozen"]
    answer = tools.ask(argv, activation.SECONDS, _variables(before, making.settings), making.target)
    for line in answer.err.splitlines():
        making.journal.note(line)
    if answer.trouble:
        raise making.journal.failure(f"pixi shell-hook: {answer.trouble}")
    try:
        after = json.loads(answer.out)["environment_variables"]
    except (ValueError, KeyError, TypeError):
        raise making.journal.failure(f"pixi shell-hook answered {answer.out[:80]!r}") from None
    told = {str(name): str(value) for name, value in after.items()}
    return activation.between(_variables(before, making.settings), told, whole=False)


def _variables(environ: Mapping[str, str], settings: Settings) -> dict[str, str]:
    cache = os.fspath(paths.office(settings) / "cache" / "pixi")
    return {"PIXI_CACHE_DIR": cache, "RATTLER_CACHE_DIR": cache, **environ, "PIXI_NO_PROGRESS": "true", "PIXI_COLOR": "never"}
