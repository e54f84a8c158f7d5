"""Runs apart from the host: solves, locks and installs conda packages with py-rattler, as one request file says.

A program of its own can be cancelled, cannot take the host down, and sees the variables meant for it. It tells its
progress line by line and writes its answer into the file the request names.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import rattler

from comfy_env.backends.pixi import conda_lock, conda_packages, conda_sources
from comfy_env.backends.pixi.conda_telling import Refused, Teller, say


async def act(request: dict[str, Any]) -> dict[str, Any]:
    """Do what the request says and return the answer."""
    sources = conda_sources.open_sources(request)
    virtual = conda_packages.virtual_packages(request["needs"])
    lock = conda_lock.read(request) if request["lock"] else None
    records = lock.records if lock else await _solve(request, sources, virtual)
    answer: dict[str, Any] = {
        "rattler": rattler.__version__, "packages": [conda_packages.facts(record) for record in records], "pypi": lock.pypi if lock else [],
        "channels": list(dict.fromkeys(str(record.channel).rstrip("/") for record in records if record.channel)),
    }
    if request["prefix"]:
        conda_packages.check_files(records)
        await _install(request, sources, records)
        if lock is None:
            conda_lock.write(request, records)
    return answer


async def _solve(request: dict[str, Any], sources: conda_sources.Sources, virtual: list[Any]) -> list[Any]:
    say(f"solving {len(request['specs'])} conda requirements from {', '.join(request['channels'])}")
    records = await rattler.solve(
        sources=sources.channels, specs=[rattler.MatchSpec(spec) for spec in request["specs"]],
        constraints=[rattler.MatchSpec(spec) for spec in request["constraints"]], gateway=sources.gateway,
        platforms=[rattler.Subdir(request["platform"]), rattler.Subdir("noarch")], virtual_packages=virtual,
        channel_priority=getattr(rattler.ChannelPriority, request["priority"].capitalize()), strategy=request["strategy"],
    )
    return sorted(records, key=lambda record: str(record.file_name))


async def _install(request: dict[str, Any], sources: conda_sources.Sources, records: list[Any]) -> None:
    say(f"installing {len(records)} conda packages")
    await rattler.install(
        records, request["prefix"], cache_dir=Path(request["cache"], "pkgs"), client=sources.client, config=sources.config,
        platform=rattler.Subdir(request["platform"]), show_progress=False,
        reporter=Teller(len(records)),  # type: ignore[abstract]  # a protocol whose other methods do nothing
    )


def main(file: str) -> int:
    """Do what the request in the file says; the exit status is 0 where that went well."""
    request = json.loads(Path(file).read_text(encoding="utf-8"))
    try:
        answer = asyncio.run(act(request))
    except Refused as refused:
        answer = {"trouble": refused.kind, "what": refused.what}
    except Exception as error:  # py-rattler's own errors have no common base; whatever it was is told by its words
        if type(error).__module__ != "exceptions":  # not one of py-rattler's
            traceback.print_exc()
        answer = {"trouble": "", "what": str(error) or type(error).__name__, "type": type(error).__name__}
    if "trouble" in answer:
        sys.stderr.write(f"{answer['what']}\n")
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    return 1 if "trouble" in answer else 0


def leave(code: int) -> None:
    """End at once: threads of py-rattler that still run abort a Python that shuts down in an orderly way."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main(sys.argv[1]))
