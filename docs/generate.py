"""Writes the reference pages from the code: settings, command line, hooks, errors.

    python docs/generate.py            write them
    python docs/generate.py --check    say which differ from the code; ends with 1 if any does
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from comfy_env import errors
from comfy_env.cli.exits import Exit, exit_code
from comfy_env.cli.parser import build_parser
from comfy_env.hooks.agents import Agents
from comfy_env.hooks.observe import Observe
from comfy_env.hooks.provision import Provision
from comfy_env.hooks.specs import Lifecycle
from comfy_env.orchestrator.settings import OrchestratorSettings
from comfy_env.settings import Settings

HERE = Path(__file__).resolve().parent
HEAD = "<!-- Written by docs/generate.py from the code; `make docs` writes it anew. -->\n"


# ---------------------------------------------------------------- settings

def settings() -> str:
    """The page of every setting."""
    lines = [
        "# Settings", "",
        "Each setting is one environment variable, read when a pool is made without `settings=`. A value that cannot be read or is",
        "out of range is a `PlanError` naming the variable. Times are seconds of *lived* time: a machine that sleeps lives none. A plan's",
        "`limits` table overrides a setting for its environment by the name in the second column.", "",
        *_settings_table(Settings), "",
        "## The service", "",
        "Read once, when `comfy-env serve` starts; a successor reads them again.", "",
        *_settings_table(OrchestratorSettings),
    ]
    return _page(lines)


def _settings_table(owner: Any) -> Iterator[str]:
    yield from ("| variable | name | unit | default | range | what it is |", "|---|---|---|---|---|---|")
    for spec in fields(owner):
        meta = spec.metadata
        ranged = f"{meta['low']:g} to {meta['high']:g}" if isinstance(spec.default, int | float) else ""
        yield f"| `{meta['variable']}` | `{spec.name}` | {meta['unit']} | {_default(spec.default)} | {ranged} | {meta['help']} |"


def _default(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value in (None, "") else str(value)


# ---------------------------------------------------------------- command line

def command_line() -> str:
    """The page of every command."""
    parser = build_parser()
    lines = ["# The command `comfy-env`", "", str(parser.description), "",
             "Every command takes `--json` (one JSON document on stdout; progress and errors stay on stderr) and `--verbose`.", ""]
    codes = [f"| {int(code)} | {code.meaning} |" for code in Exit]
    lines += ["## Exit codes", "", "| code | meaning |", "|---|---|", *codes, "", "## Commands", ""]
    for name, command in _commands(parser):
        lines += [f"### `{' '.join(['comfy-env', name, *_usage(command)])}`", "", str(command.description), ""]
        rows = [f"| `{_names(action)}` | {action.help} |" for action in _arguments(command)]
        lines += ["| argument | meaning |", "|---|---|", *rows, ""] if rows else []
    return _page(lines)


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    everywhere = ("help", "json", "verbose")
    return [action for action in parser._actions if action.dest not in everywhere]


def _usage(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in _arguments(parser):
        word = _names(action)
        required = action.required and action.nargs != "*"
        many = " ..." if action.nargs in ("*", "+") or isinstance(action, argparse._AppendAction) else ""
        yield f"{word}{many}" if required else f"[{word}{many}]"


def _names(action: argparse.Action) -> str:
    metavar = str(action.metavar or action.dest)
    if not action.option_strings:
        return metavar
    return action.option_strings[-1] if action.nargs == 0 else f"{action.option_strings[-1]} {metavar}"


# ---------------------------------------------------------------- hooks

def hooks() -> str:
    """The page of every hook."""
    lines = ["# Hooks", "",
             "pluggy project `comfy_env`; mark an implementation with `comfy_env.hookimpl`. A misspelled hook or argument is refused at",
             "registration. How to write a backend: [the guide](../guides/author-a-backend.md).", ""]
    for title, owner in (("The lifecycle verbs", Lifecycle), ("Provisioning", Provision), ("Observers", Observe), ("Agents", Agents)):
        lines += [f"## {title}", "", *_doc(owner), ""]
        for name, function in vars(owner).items():
            if name.startswith("comfy_env_"):
                lines += [f"### {name}", "", "```python", signature(name, function), "```", "", *_doc(function), ""]
    return _page(lines)


def signature(name: str, function: Callable[..., Any]) -> str:
    """Return a hook's signature without `self`, in the words of the source."""
    given = inspect.signature(function)
    arguments = ", ".join(f"{one.name}: {one.annotation}" for one in list(given.parameters.values())[1:])
    return f"{name}({arguments}) -> {given.return_annotation}"


# ---------------------------------------------------------------- errors

def tree() -> str:
    """The page of every error."""
    drawing = inspect.cleandoc(errors.__doc__ or "").split("::\n", 1)[1]
    drawn, _, told = drawing.partition("\n\nEvery error")
    lines = ["# Errors", "", f"Every error{told}", "", "```text", inspect.cleandoc(drawn), "```", "",
             "| error | is also a | exit code | meaning |", "|---|---|---|---|"]
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, errors.ComfyEnvError):
            bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__ if base is not Exception)
            lines.append(f"| `{name}` | {bases} | {int(exit_code(kind('')))} | {_doc(kind)[0]} |")
    return _page([*lines, *_examples()])


def _examples() -> Iterator[str]:
    yield from ("", "## What each looks like", "",
                "Provoked for real when this page is written; numbers, times and places that differ between machines are replaced.")
    for kind, (scene, text) in _told().items():
        yield from ("", f"### {kind.__name__}", "", scene, "", "```text", *text.splitlines(), "```")


def _told() -> dict[Any, tuple[str, str]]:
    """Load the scenes from beside this file, once per process: provoking them takes seconds."""
    name = "comfy_env_error_examples"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / "error_examples.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name].told()


# ---------------------------------------------------------------- writing

PAGES: dict[str, Callable[[], str]] = {"settings.md": settings, "cli.md": command_line, "hooks.md": hooks, "errors.md": tree}


def _doc(thing: object) -> list[str]:
    return inspect.cleandoc(getattr(thing, "__doc__", None) or "").splitlines()


def _page(lines: list[str]) -> str:
    return HEAD + "\n" + "\n".join(lines).rstrip() + "\n"


def stale(folder: Path = HERE / "reference") -> list[str]:
    """Return the pages that differ from the code."""
    def committed(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8") if (folder / name).is_file() else ""

    return [name for name, write in PAGES.items() if committed(name) != write()]


def main(argv: list[str]) -> int:
    if "--check" in argv:
        differing = stale()
        sys.stderr.writelines(f"docs/reference/{name} differs from the code: run `make docs`\n" for name in differing)
        return 1 if differing else 0
    for name, write in PAGES.items():
        (HERE / "reference" / name).write_text(write(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
