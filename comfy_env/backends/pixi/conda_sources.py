"""Where py-rattler's packages come from: the channels, the user's pixi configuration (mirrors, proxies, certificates), caches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rattler
from rattler.config import Config
from rattler.exceptions import ConfigError, InvalidChannelError

from comfy_env.backends.pixi.conda_telling import Refused, say

AGENT = "comfy-env"


@dataclass(frozen=True)
class Sources:
    """What py-rattler asks for packages. ``client`` is None offline."""

    channels: list[Any]
    gateway: Any
    client: Any
    config: Any


def open_sources(request: dict[str, Any]) -> Sources:
    """Return the sources of a request."""
    config = _config(request["config"])
    client = rattler.Client.from_config(config, user_agent=AGENT)
    channels = [_channel(name, request["root"]) for name in request["channels"]]
    return Sources(channels, _gateway(request, config, client), client, config)


def _config(where: str) -> Config:
    """Return the user's configuration of pixi: '' for its usual places, '-' for none, else a file."""
    if where == "-":
        return Config()
    try:
        found = Config.load_from_files([where]) if where else Config.load_from_default_locations("pixi")
    except ConfigError as error:
        say(f"pixi's configuration cannot be read and is left out: {error}")
        return Config()
    if found.loaded_from:
        say(f"configured by {', '.join(map(str, found.loaded_from))}")
    return found


def _channel(name: str, root: str) -> Any:
    try:
        return rattler.Channel(name, rattler.ChannelConfig(root_dir=root))
    except InvalidChannelError as error:
        raise Refused("plan", f"{name!r} is not a channel: {error}") from None


def _gateway(request: dict[str, Any], config: Config, client: Any) -> Any:
    cache = Path(request["cache"], "repodata")
    if not request["offline"]:
        return rattler.Gateway.from_config(config, cache_dir=cache, client=client)
    say("offline: only channels on disk and what is in the cache are used")
    never = rattler.SourceConfig(cache_action="force-cache-only")
    local = rattler.SourceConfig(cache_action="no-cache")
    return rattler.Gateway(cache, default_config=never, per_channel_config={"file:": local}, client=client)
