"""`comfy-env run`: a workflow over packs, without ComfyUI."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from comfy_env.cli.choose import plans_of
from comfy_env.cli.exits import Exit, NotThere
from comfy_env.cli.screen import Screen
from comfy_env.pool import WorkerPool
from comfy_env.runner import Report, Runner, Workflow, WorkflowRefused
from comfy_env.runner.console import watching
from comfy_env.runner.problems import NotAWorkflow
from comfy_env.runner.report import HEADINGS, cells


def act(options: argparse.Namespace, screen: Screen) -> Exit:
    """Run the workflow and show one row per node."""
    workflow = Workflow.load(_file(options.workflow)).with_inputs(dict(map(_setting, options.set)))
    plans = plans_of(options.packs)
    if not plans:
        raise NotThere(f"none of {', '.join(options.packs)} declares an environment",
                       hint="add a [tool.comfy-env] table to its pyproject.toml")
    with WorkerPool() as pool, watching(screen.err) as watcher:
        runner = Runner(pool, plans, watcher=watcher)
        if options.build:
            runner.build()
        report = _run(runner, workflow)
    screen.document(report.as_json())
    screen.table(HEADINGS, map(cells, report.rows))
    return _end(report, screen)


def _run(runner: Runner, workflow: Workflow) -> Report:
    """Run the workflow; where an environment that could not be used is why it was refused, that error is the one told."""
    try:
        return runner.run(workflow)
    except WorkflowRefused as refused:
        for failure in runner.catalog.failed.values():
            raise failure from refused
        raise


def _file(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise NotThere(f"there is no file {path}")
    return path


def _setting(text: str) -> tuple[str, Any]:
    """Split NODE.INPUT=VALUE; the value is JSON where it can be read as such, else text."""
    place, given, value = text.partition("=")
    if not given:
        raise NotAWorkflow(f"--set {text}: a value is wanted", hint="write --set NODE.INPUT=VALUE")
    try:
        return place, json.loads(value)
    except ValueError:
        return place, value


def _end(report: Report, screen: Screen) -> Exit:
    for error in report.errors:
        screen.note(f"{type(error).__name__}: {error}")
    if report.interrupted:
        return Exit.INTERRUPTED
    return Exit.DONE if report.ok else Exit.CALL

