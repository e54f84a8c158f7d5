"""`comfy-env serve` and `service`: start the long-running service, ask it, tell it what to do."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from comfy_env.cli.exits import Exit, NotThere
from comfy_env.cli.screen import Screen, in_bytes, in_time
from comfy_env.errors import ComfyEnvError
from comfy_env.orchestrator.client import Client, NotServed

SAFE = ("-P",) if sys.version_info >= (3, 11) else ()
"""What lies in the working folder is not what the service imports."""
PROGRAM = (*SAFE, "-m", "comfy_env.orchestrator", "serve")
ACTIONS = ("status", "restart", "update", "release", "reap", "stop")
_LOOK = 0.2
_COMES_BACK = {
    "spawn": "starts its successor itself",
    "supervised": "ends with 75, for its supervisor to start it again",
    "notify": "must be restarted from outside",
}


def serve(options: argparse.Namespace, screen: Screen) -> Exit:
    """Become the service: this very process, so that signals and the terminal are its own. Ends with 3 where another one serves."""
    if importlib.util.find_spec("aiohttp") is None:
        raise ComfyEnvError("the service needs aiohttp", hint="python -m pip install 'comfy-env[orchestrator]', or aiohttp alone")
    given = [("--port", options.port), ("--state", options.state), *(("--agents", agents) for agents in options.agents)]
    words = [word for name, value in given if value is not None for word in (name, str(value))]
    screen.out.flush()
    os.execv(sys.executable, [sys.executable, *PROGRAM, *words, *(["--verbose"] if options.verbose else [])])


def act(options: argparse.Namespace, screen: Screen) -> Exit:
    """Ask the service that runs, or have it do something; ends with 8 where none runs."""
    try:
        client = Client.found(options.state)
    except NotServed as nobody:
        raise NotThere(nobody.message, hint=nobody.hint) from nobody
    return _ACTS[options.action](client, options, screen)


def _status(client: Client, options: argparse.Namespace, screen: Screen) -> Exit:
    state = client.get("/api/state")
    screen.document(state)
    screen.say(*_lines(state))
    screen.table(("ENV", "GEN", "STATE", "PID", "HELD", "CALLS"), [_worker(row) for row in state["workers"]], empty="no workers")
    return Exit.DONE


def _lines(state: dict[str, Any]) -> Iterator[str]:
    since = state["since"]
    age = f" for {in_time(max(0.0, time.time() - since))}" if since else ""
    yield f"comfy-env {state['version']}, generation {state['generation']}, process {state['pid']}, serves{age}"
    restart, back = state["restart"], state["comes_back"]
    yield f"to load new code it {_COMES_BACK.get(back['mode'], back['mode'])}: {back['why']}"
    if restart["to"]:
        yield f"a restart into {restart['to']} is {restart['phase']}" + _waits(restart["waiting"])
    yield f"ComfyUI: {state['render']['state']}; agents: {', '.join(agent['name'] for agent in state['agents']) or 'none'}"
    yield from (f"  {in_time(max(0.0, time.time() - note['at']))} ago: {note['text']}" for note in state["notes"][-5:])


def _waits(waiting: list[str]) -> str:
    return f", waiting for: {'; '.join(waiting)}" if waiting else ""


def _worker(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["env"], row["generation"], row["state"], row["pid"], in_bytes(row["held"]), row["calls"])


def _restart(client: Client, options: argparse.Namespace, screen: Screen) -> Exit:
    before = client.get("/health")["generation"]
    answer = client.do(options.action)
    screen.note(f"the restart is {answer['phase']}{_waits(answer['waiting'])}")
    if not options.wait:
        screen.document(answer)
        return Exit.DONE
    return _await(client, before, options.wait, screen)


def _await(client: Client, before: int, seconds: float, screen: Screen) -> Exit:
    """Watch until another generation serves, or the restart was given up. Under a supervisor there is nobody for a moment."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        state = _state(client)
        if state is None:
            time.sleep(_LOOK)
            continue
        if state["generation"] > before:
            screen.document(state)
            screen.say(f"generation {state['generation']} serves")
            return Exit.DONE
        if state["restart"]["phase"] == "cooldown":
            raise ComfyEnvError(state["notes"][-1]["text"] if state["notes"] else "the restart failed", hint="comfy-env service status")
        time.sleep(_LOOK)
    raise ComfyEnvError(f"no other generation serves after {seconds:g} s", hint="comfy-env service status tells what it waits for")


def _state(client: Client) -> dict[str, Any] | None:
    try:
        return client.get("/api/state")
    except NotServed:  # the one that was is gone, and the next is not there yet
        return None


def _release(client: Client, options: argparse.Namespace, screen: Screen) -> Exit:
    answer = client.do("release", env=_env(options))
    screen.document(answer)
    screen.say(f"{in_bytes(answer['freed'])} freed, {in_bytes(answer['held'])} still held" if answer["worker"] else "it has no worker")
    return Exit.DONE


def _reap(client: Client, options: argparse.Namespace, screen: Screen) -> Exit:
    answer = client.do("reap", env=_env(options))
    screen.document(answer)
    screen.say("its worker was ended" if answer["worker"] else "it has no worker")
    return Exit.DONE


def _env(options: argparse.Namespace) -> str:
    if not options.env:
        raise NotThere(f"`service {options.action}` needs the key of an environment", hint="comfy-env service status shows them")
    return str(options.env)


def _stop(client: Client, options: argparse.Namespace, screen: Screen) -> Exit:
    screen.document(client.do("stop"))
    screen.say("it is stopping")
    return Exit.DONE


_ACTS: dict[str, Callable[[Client, argparse.Namespace, Screen], Exit]] = {
    "status": _status, "restart": _restart, "update": _restart, "release": _release, "reap": _reap, "stop": _stop,
}
