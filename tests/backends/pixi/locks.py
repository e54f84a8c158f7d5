"""The same lock in each version of the format there was."""

from __future__ import annotations

import json

VERSIONS = range(1, 8)


def write(version: int, platform: str, channel: str, packages: list[dict]) -> str:
    """Return a lock of conda packages (name, version, build, url, sha256, subdir, depends); YAML contains JSON."""
    return json.dumps((_flat if version < 4 else _with_environments)(version, platform, channel, packages), indent=1)


def _flat(version: int, platform: str, channel: str, packages: list[dict]) -> dict:
    meta = {"content_hash": {platform: "0" * 64}, "platforms": [platform], "sources": []}
    meta["channels"] = [{"url": channel, "used_env_vars": []}]
    rows = [{
        "platform": platform, "name": one["name"], "version": one["version"], "category": "main", "manager": "conda", "url": one["url"],
        "dependencies": list(one["depends"]) if version > 1 else {name: "" for name in one["depends"]}, "hash": {"sha256": one["sha256"]},
        "build": one["build"], "subdir": one["subdir"], "build_number": 0, **one["noarch"],
    } for one in packages]
    return {"version": version, "metadata": meta, "package": rows}


def _with_environments(version: int, platform: str, channel: str, packages: list[dict]) -> dict:
    listed = {platform: [{"conda": one["url"]} for one in packages]}
    whole = {"version": version, "environments": {"default": {"channels": [{"url": channel}], "packages": listed}}}
    if version == 7:
        whole["platforms"] = [{"name": platform}]
    say = _named if version < 6 else _located
    rows = [{"sha256": one["sha256"], "depends": list(one["depends"]), **say(one), **one["noarch"]} for one in packages]
    return {**whole, "packages": rows}


def _named(one: dict) -> dict:
    return {"kind": "conda", "build_number": 0, **{key: one[key] for key in ("name", "version", "build", "subdir", "url")}}


def _located(one: dict) -> dict:
    return {"conda": one["url"], "subdir": one["subdir"]}
