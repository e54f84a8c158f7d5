"""The lifecycle verbs of a worker that is a process of this machine, so that a local backend says only what differs.

Override a verb by a method of the same name with `@hookimpl`, or `launch_for` to change only what is started.
"""

from __future__ import annotations

from comfy_env.hooks import hookimpl
from comfy_env.process import launch as starting
from comfy_env.process import tree
from comfy_env.settings import Settings
from comfy_env.transport import commands
from comfy_env.transport.handshake import join
from comfy_env.values import Canary, Killed, Lanes, Launch, Process, Proof, Released, Want


class OverLanes:
    """The verbs that only need the lanes: joining over the launch's endpoint, the proof, the release."""

    @hookimpl
    def comfy_env_transport(self, process: Process, launch: Launch) -> Lanes:
        return join(launch.endpoint, process, launch)

    @hookimpl
    def comfy_env_verify(self, process: Process, lanes: Lanes, canary: Canary) -> Proof:
        return commands.verify(process, lanes, canary)

    @hookimpl
    def comfy_env_release(self, process: Process, lanes: Lanes, want: Want) -> Released:
        return commands.release(process, lanes, want)


class LocalBackend(OverLanes):
    """Starts the launch's program in a group of its own and joins it over inherited descriptors.

    ``kill_seconds`` bounds its kill; the core looks afterwards and ends what is left.
    """

    capabilities = frozenset({
        "own_process", "survives_crash", "killable", "own_dependencies", "passes_descriptors", "zero_copy_cpu", "zero_copy_gpu",
    })
    kill_seconds: float = Settings().kill

    def launch_for(self, launch: Launch) -> Launch:
        """Return the launch that is really started; the place for an interpreter, a program in front, variables."""
        return launch

    @hookimpl
    def comfy_env_spawn(self, launch: Launch) -> Process:
        return starting.start(self.launch_for(launch))

    @hookimpl
    def comfy_env_kill(self, process: Process, reason: str, replaced: bool) -> Killed:
        return tree.end(process, nonce=getattr(process, "nonce", ""), deadline_seconds=self.kill_seconds)
