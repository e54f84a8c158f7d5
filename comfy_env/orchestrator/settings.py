"""Every setting of the orchestrator, in the manner of `comfy_env.settings`: variable, unit, default and range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from comfy_env.settings import ON_OR_OFF, given, setting, typed


@dataclass(frozen=True)
class OrchestratorSettings:
    """What can be tuned. Switches are 0 or 1; times are seconds of lived time unless the unit says otherwise."""

    # where
    host: str = setting("127.0.0.1", "COMFY_ENV_ORCH_HOST", "address", "address to listen on")
    port: int = setting(8199, "COMFY_ENV_ORCH_PORT", "port", "port to listen on; 0 takes a free one", high=65_535)
    comfyui_url: str = setting(
        "http://127.0.0.1:8188", "COMFY_ENV_ORCH_COMFYUI_URL", "URL", "the ComfyUI whose renders are watched; 'off': none"
    )
    state_dir: Path | None = setting(None, "COMFY_ENV_ORCH_STATE_DIR", "folder", "the instance's state (default: the user's state folder)")

    # when a restart may happen
    gate_poll: float = setting(5.0, "COMFY_ENV_ORCH_GATE_POLL_S", "s", "period of the idle gate's question", low=0.01)
    min_uptime: float = setting(120.0, "COMFY_ENV_ORCH_MIN_UPTIME_S", "s", "time a process serves before it restarts by itself")
    unknown_hold: float = setting(120.0, "COMFY_ENV_ORCH_UNKNOWN_HOLD_S", "s", "time an unknown render counts as busy")
    blocker_reply: float = setting(1.0, "COMFY_ENV_ORCH_BLOCKER_REPLY_S", "s", "time a plugin's blocker has to answer", low=0.01)
    blocker_announce: float = setting(600.0, "COMFY_ENV_ORCH_BLOCKER_ANNOUNCE_S", "s", "time after which a plugin's unknown is announced")
    dev_poll: float = setting(1.0, "COMFY_ENV_ORCH_DEV_POLL_S", "s", "period of the look at the sources", low=0.01)
    selftest: float = setting(30.0, "COMFY_ENV_ORCH_SELFTEST_S", "s", "limit of the test of a changed tree", low=0.1)
    max_updates: int = setting(3, "COMFY_ENV_ORCH_MAX_UPDATES_H", "1/h", "automatic updates in an hour at most", low=1, high=60)

    # limits of a handover
    fence: float = setting(60.0, "COMFY_ENV_ORCH_FENCE_S", "s", "longest time no turn may start because of a restart", low=0.1)
    hello: float = setting(30.0, "COMFY_ENV_ORCH_HELLO_S", "s", "limit until a replacement says hello", low=0.1)
    listening: float = setting(30.0, "COMFY_ENV_ORCH_LISTENING_S", "s", "limit until a replacement has proved itself", low=0.1)
    pool_close: float = setting(5.0, "COMFY_ENV_ORCH_POOL_CLOSE_S", "s", "limit of the end of all workers before a handover", low=0.1)
    serving: float = setting(5.0, "COMFY_ENV_ORCH_SERVING_S", "s", "limit until a committed replacement serves", low=0.1)
    confirm: float = setting(60.0, "COMFY_ENV_ORCH_CONFIRM_S", "s", "time a replacement serves before its predecessor goes", low=0.05)
    drain: float = setting(10.0, "COMFY_ENV_ORCH_DRAIN_S", "s", "time accepted connections get to end", low=0.05)
    bind: float = setting(3.0, "COMFY_ENV_ORCH_BIND_S", "s", "how long a cold start tries to bind")

    # the store
    keep_days: float = setting(21.0, "COMFY_ENV_ORCH_KEEP_DAYS", "d", "age at which events are forgotten", low=0.01, high=36_500)
    keep_mib: float = setting(200.0, "COMFY_ENV_ORCH_KEEP_MIB", "MiB", "size above which the oldest events are forgotten", low=1, high=1e6)

    # switches
    updates_off: int = setting(0, "COMFY_ENV_AUTO_UPDATE_DISABLE", ON_OR_OFF, "1: no checks, no watches, no automatic restarts", high=1)
    autorestart: int = setting(1, "COMFY_ENV_AUTORESTART", ON_OR_OFF, "0: say once what is ready; never restart by itself", high=1)
    update_check_ms: float = setting(
        3_600_000.0, "COMFY_ENV_UPDATE_CHECK_MS", "ms", "period of the question for a newer version", low=60_000, high=1e10
    )
    supervised: int = setting(
        -1, "COMFY_ENV_ORCH_SUPERVISED", "-1, 0 or 1", "1: a supervisor starts it again; 0: nobody does; -1: find out", low=-1, high=1
    )

    def __post_init__(self) -> None:
        typed(self)

    @property
    def told_supervised(self) -> bool | None:
        """What the user says about a supervisor, None for nothing."""
        return None if self.supervised < 0 else bool(self.supervised)

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None) -> OrchestratorSettings:
        """Return the settings that the environment variables ask for; raises PlanError on a value that cannot be used."""
        return cls(**given(cls, environ))
