"""The five lifecycle verbs a backend supplies, and `launch` for wrappers.

The core calls each verb through the backend's own relay, on a thread it can abandon: a verb that takes longer than its
limit is left behind, the worker is ended, and whatever the verb still returns is closed at once. An exception becomes
the named failure of that step. A wrong type or None is a `BackendError` that names backend and verb.
"""

from __future__ import annotations

import pluggy

from comfy_env.values import Canary, Killed, Lanes, Launch, Process, Proof, Released, Want

PROJECT = "comfy_env"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Lifecycle:
    """What every backend implements (all but `comfy_env_launch`)."""

    @hookspec
    def comfy_env_launch(self, launch: Launch) -> Launch | None:
        """Return the launch to use instead, or None to leave it.

        Called before each spawn on every wrapper in order; each sees the result of the one before. The program line,
        variables and limits may change; env, generation, nonces, key and endpoint may not (BackendError). Must not
        start anything.
        """

    @hookspec(firstresult=True)
    def comfy_env_spawn(self, launch: Launch) -> Process:
        """Start the worker's process and return it without waiting for it.

        Called when a call wants a cold environment. Limit: `COMFY_ENV_SPAWN_SECONDS`. A missing interpreter raises
        `InterpreterMissing`.
        """

    @hookspec(firstresult=True)
    def comfy_env_transport(self, process: Process, launch: Launch) -> Lanes:
        """Join the two lanes, handshake done on both, and return them.

        Called right after spawn. Must watch the process while waiting (`DiedBeforeJoining`), and call `launch.sign`
        with a stage name at each sign of life: the limit `COMFY_ENV_BIRTH_SECONDS` counts from the last one.
        """

    @hookspec(firstresult=True)
    def comfy_env_verify(self, process: Process, lanes: Lanes, canary: Canary) -> Proof:
        """Send the canary through the real transport and return what came back; the core judges it.

        Called once, before the first call. Limit: `COMFY_ENV_VERIFY_SECONDS`.
        """

    @hookspec(firstresult=True)
    def comfy_env_release(self, process: Process, lanes: Lanes, want: Want) -> Released:
        """Ask the worker to give memory back and return its measured receipt.

        Called by the idle sweep and under pressure, with no call on the lane. Limit: `COMFY_ENV_RELEASE_SECONDS`.
        """

    @hookspec(firstresult=True)
    def comfy_env_kill(self, process: Process, reason: str, replaced: bool) -> Killed:
        """End the worker and everything it started; return what was ended.

        Called at every death, from any thread, perhaps twice for one process. Must not raise, take longer than
        `COMFY_ENV_KILL_SECONDS`, or reap the process before its tree is empty. The core looks afterwards and ends what
        is left.
        """
