"""The command line: every command, its arguments and help. The reference page is generated from this."""

from __future__ import annotations

import argparse
from pathlib import Path

from comfy_env import __version__
from comfy_env.cli import backends, doctor, envs, mcp, migrate, run, service, snapshot, status, workers
from comfy_env.cli.exits import Exit


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; the chosen command's function is `act` of the result."""
    parser = argparse.ArgumentParser(
        prog="comfy-env",
        description="Run ComfyUI node packs with conflicting dependencies side by side, each in its own Python environment.",
        epilog="exit codes: " + ", ".join(f"{int(code)} {code.meaning.split('(')[0].split(';')[0].strip()}" for code in Exit),
    )
    parser.add_argument("--version", action="version", version=f"comfy-env {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _status(commands)
    _plan(commands)
    _build(commands)
    _remove(commands)
    _snapshot(commands)
    _migrate(commands)
    _run(commands)
    _ps(commands)
    _story(commands)
    _sweep(commands)
    _backends(commands)
    _doctor(commands)
    _serve(commands)
    _service(commands)
    _mcp(commands)
    return parser


def _command(commands: argparse._SubParsersAction, name: str, help: str, act: object, about: str = "") -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}. {about}".strip())
    parser.add_argument("--json", action="store_true", help="write one JSON document instead of tables")
    parser.add_argument("--verbose", action="store_true", help="write the log, and the traceback of an error, to stderr")
    parser.set_defaults(act=act)
    return parser


def _packs(parser: argparse.ArgumentParser, required: bool = False) -> None:
    parser.add_argument("packs", nargs="+" if required else "*", default=["."], metavar="PACK",
                        help="a pack's folder, or a folder of packs" + ("" if required else " (default: this folder)"))
    parser.add_argument("--env", action="append", default=[], metavar="KEY", help="only environments with this key or pattern; repeatable")


def _status(commands: argparse._SubParsersAction) -> None:
    parser = _command(commands, "status", "show every environment as a probe finds it", status.act,
                      "Each environment's interpreter is run and what the pack needs is imported. Ends with 4 unless all are ready.")
    _packs(parser)
    parser.add_argument("--quick", action="store_true", help="look at stamps and files only; run nothing")


def _plan(commands: argparse._SubParsersAction) -> None:
    parser = _command(commands, "plan", "show what a build would do, without doing it", envs.plan,
                      "Also names the requirements on which two environments cannot agree: why they need one each.")
    _packs(parser)


def _build(commands: argparse._SubParsersAction) -> None:
    parser = _command(commands, "build", "build the environments that are not ready", envs.build,
                      "Each is built alone and swapped in when it works; one that fails does not stop the others. Ctrl-C cancels.")
    _packs(parser)


def _remove(commands: argparse._SubParsersAction) -> None:
    parser = _command(commands, "remove", "remove built environments", envs.remove,
                      "The packs stay as they are; `build` makes the environments anew.")
    _packs(parser, required=True)


def _snapshot(commands: argparse._SubParsersAction) -> None:
    parser = _command(commands, "snapshot", "describe a pack's nodes, so that ComfyUI shows them without starting a worker", snapshot.act,
                      "The pack is imported in its environment, in a process of its own. `build` does this by itself.")
    _packs(parser)
    parser.add_argument("--comfyui", metavar="DIR", help="the ComfyUI whose sources the pack imports (default: the one it lies in)")
    parser.add_argument("--ship", action="store_true", help="also write it into the pack's folder, for users who have built nothing yet")


def _migrate(commands: argparse._SubParsersAction) -> None:
    parser = _command(commands, "migrate", "say in a [tool.comfy-env] table what a pack's older files say", migrate.act,
                      "Shows the table, and what the older files or the pack's code ask for that has no place in it.")
    parser.add_argument("packs", nargs="+", metavar="PACK", help="a pack's folder, with a comfy-env.toml")
    parser.add_argument("--write", action="store_true", help="add the table to the pack's pyproject.toml")


def _run(commands: argparse._SubParsersAction) -> None:
    parser = _command(commands, "run", "run a workflow without ComfyUI", run.act,
                      "Takes the JSON that ComfyUI's \"Save (API format)\" writes and the packs its nodes come from.")
    parser.add_argument("workflow", metavar="WORKFLOW.json", help="the workflow in API format")
    parser.add_argument("--pack", action="append", default=[], metavar="DIR", dest="packs", required=True,
                        help="a pack the workflow's nodes come from; repeatable")
    parser.add_argument("--build", action="store_true", help="build environments that are not ready first")
    parser.add_argument("--set", action="append", default=[], metavar="NODE.INPUT=VALUE",
                        help="use another constant for one input; repeatable")


def _ps(commands: argparse._SubParsersAction) -> None:
    _command(commands, "ps", "show the workers of every running host of this user", workers.ps)


def _story(commands: argparse._SubParsersAction) -> None:
    parser = _command(commands, "story", "tell the life of an environment's workers", workers.story,
                      "Births, proofs, limits and deaths, from running hosts and from those that closed.")
    parser.add_argument("env", nargs="?", metavar="ENV", help="the environment's key; without it the known ones are listed")


def _sweep(commands: argparse._SubParsersAction) -> None:
    parser = _command(commands, "sweep", "end workers and remove run folders that a dead host left behind", workers.sweep,
                      "Touches nothing of a running host, and kills only a process that carries the mark of the dead one.")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")


def _backends(commands: argparse._SubParsersAction) -> None:
    _command(commands, "backends", "list the backends, who brought them and what they can", backends.act)


def _doctor(commands: argparse._SubParsersAction) -> None:
    parser = _command(commands, "doctor", "check this machine and say what to mend", doctor.act,
                      "Starts one worker to see the whole way work.")
    parser.add_argument("--quick", action="store_true", help="start no worker")


def _serve(commands: argparse._SubParsersAction) -> None:
    parser = _command(commands, "serve", "run the local service until told to stop", service.serve,
                      "It keeps itself current: a changed source tree is loaded at a moment that costs nobody anything. "
                      "Ends with 3 where another one serves the same folder.")
    parser.add_argument("--port", type=int, help="the port to listen on; 0 takes a free one (default: COMFY_ENV_ORCH_PORT)")
    parser.add_argument("--state", metavar="FOLDER", help="the instance's state folder (default: COMFY_ENV_ORCH_STATE_DIR)")
    parser.add_argument("--agents", action="append", default=[], metavar="MODULE:OBJECT",
                        help="a plugin beside those installed; repeatable")


def _service(commands: argparse._SubParsersAction) -> None:
    parser = _command(commands, "service", "ask the local service, or tell it what to do", service.act,
                      "A restart waits until nothing runs, waits or is held; `status` says for what it waits.")
    parser.add_argument("action", choices=service.ACTIONS, metavar="ACTION", help=", ".join(service.ACTIONS))
    parser.add_argument("env", nargs="?", metavar="ENV", help="the environment's key, for release and reap")
    parser.add_argument("--state", type=Path, metavar="FOLDER", help="the instance's state folder (default: COMFY_ENV_ORCH_STATE_DIR)")
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="watch a restart until the next generation serves")


def _mcp(commands: argparse._SubParsersAction) -> None:
    _command(commands, "mcp", "serve these questions as tools to an MCP client over stdin and stdout", mcp.act,
             "The client owns this process, so it never replaces itself.")
