"""`comfy-env mcp`: the same questions as tools for a client that owns this process's input and output.

That client started this process and ends it. So the process says at once that its life is not its own: from then on
nothing in it can make what restarts a service.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from comfy_env import __version__
from comfy_env.cli.choose import plans_in
from comfy_env.cli.exits import Exit
from comfy_env.cli.journals import hosts, runtime_folder, tales
from comfy_env.cli.screen import Screen
from comfy_env.errors import ComfyEnvError
from comfy_env.orchestrator import ownership
from comfy_env.orchestrator.client import Client, NotServed
from comfy_env.pool import WorkerPool
from comfy_env.runner import Runner, Workflow
from comfy_env.settings import Settings

ABOUT = "Worker environments of ComfyUI node packs on this machine: what runs, what happened, running a workflow."


def act(options: argparse.Namespace, screen: Screen) -> Exit:
    """Serve tools over stdin and stdout until the client closes them."""
    ownership.process.claim("an MCP client")
    if importlib.util.find_spec("mcp") is None:
        raise ComfyEnvError("this needs the mcp package", hint="python -m pip install 'comfy-env[mcp]', or mcp alone")
    server = importlib.import_module("mcp.server").MCPServer("comfy-env", instructions=ABOUT, version=__version__)
    problem = importlib.import_module("mcp.server.mcpserver.exceptions").ToolError
    for tool in TOOLS:
        server.add_tool(_told(tool, problem))
    server.run("stdio")
    return Exit.DONE


def _told(tool: Callable[..., Any], problem: type[Exception]) -> Callable[..., Any]:
    """Return the tool so that the client is told what went wrong and what to do; of other errors it hears only that they were."""

    @functools.wraps(tool)
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return tool(*args, **kwargs)
        except ComfyEnvError as error:
            raise problem(str(error)) from error

    return told


def status() -> dict[str, Any]:
    """Tell whether the comfy-env service runs, which version and generation serves, and what a pending restart waits for."""
    try:
        return {"running": True, **Client.found().get("/api/state")}
    except NotServed as nobody:
        return {"running": False, "why": nobody.message, "next": nobody.hint}


def workers() -> list[dict[str, Any]]:
    """List the workers of every running host of this user: environment, generation, state, memory held, calls."""
    living = [host for host in hosts(runtime_folder(Settings.read())) if host.alive]
    return [{"host": host.pid, **{name: value for name, value in env.items() if name != "story"}} for host in living for env in host.envs]


def story(env: str) -> list[str]:
    """Tell the life of an environment's workers: births, limits, deaths and their reasons, oldest first."""
    known = tales(runtime_folder(Settings.read()))
    found = [line for tale in known if tale.key == env for line in tale.lines]
    if not found:
        names = ", ".join(sorted({tale.key for tale in known})) or "none"
        return [f"there is no story of an environment {env!r}; there are: {names}"]
    return found


def release(env: str) -> dict[str, Any]:
    """Ask the service's worker of an environment to give back all memory it holds; returns bytes freed and still held."""
    return Client.found().do("release", env=env)


def run(workflow: str, packs: list[str]) -> dict[str, Any]:
    """Run a ComfyUI workflow file (API format) without ComfyUI, with the node packs in these folders; returns its outcome."""
    plans = [plan for folder in packs for plan in plans_in(Path(folder))]
    with WorkerPool() as pool:
        return Runner(pool, plans).run(Workflow.load(Path(workflow))).as_json()


TOOLS: tuple[Callable[..., Any], ...] = (status, workers, story, release, run)
