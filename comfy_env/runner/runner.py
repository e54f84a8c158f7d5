"""Runs workflows over packs without ComfyUI, and remembers what did not change between runs."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from comfy_env.errors import BuildCancelled, ComfyEnvError
from comfy_env.runner import catalog, check, order, schedule
from comfy_env.runner.catalog import Catalog
from comfy_env.runner.nodecalls import NodeCalls
from comfy_env.runner.onerun import OneRun, Result
from comfy_env.runner.problems import WorkflowError, WorkflowRefused, WrongValue
from comfy_env.runner.report import Report
from comfy_env.runner.watch import Silence, Watcher
from comfy_env.runner.workflow import Workflow
from comfy_env.values import BuildStep, EnvPlan, EnvState

log = logging.getLogger(__name__)


class Runner:
    """Runs API-format workflows over `packs`, given by folder or as plans whose `root` is the pack's folder.

    `pool` is a `WorkerPool`; it stays the caller's to close. One run at a time; `interrupt` comes from any thread.
    """

    def __init__(self, pool: Any, packs: Iterable[str | Path | EnvPlan], *, watcher: Watcher | None = None) -> None:
        self.pool = pool
        self.plans = catalog.plans_of(packs)
        self.watcher: Watcher = watcher or Silence()
        self._catalog: Catalog | None = None
        self._cache: dict[str, Result] = {}
        self._token = uuid.uuid4().hex
        self._running: OneRun | None = None

    def build(self) -> tuple[EnvState, ...]:
        """Build every environment that needs it, all at once; raises the first BuildFailed."""
        stop = threading.Event()

        def progress(step: BuildStep) -> None:
            if stop.is_set():
                raise BuildCancelled("the build was cancelled", env=step.key)
            self.watcher.building(step)

        with ThreadPoolExecutor(max_workers=max(1, len(self.plans)), thread_name_prefix="comfy-env-build") as threads:
            builds = [threads.submit(self.pool.build, plan, progress) for plan in self.plans]
            try:
                return tuple(build.result() for build in builds)
            except BaseException:
                stop.set()
                raise

    @property
    def catalog(self) -> Catalog:
        """What the packs offer; asked of their workers at the first use."""
        if self._catalog is None:
            self._catalog = catalog.load(self.pool, self.plans)
        return self._catalog

    def check(self, workflow: Workflow) -> list[WorkflowError]:
        """Return everything that is wrong with a workflow, without running a node of it.

        Environments that could not be asked before are asked again.
        """
        if self._catalog is not None and self._catalog.failed:
            self._catalog = None
        found = check.problems(workflow, self.catalog)
        return found or list(self._refusals(workflow))

    def run(self, workflow: Workflow) -> Report:
        """Run what the output nodes need and return what happened; raises WorkflowRefused before anything runs.

        A failing node ends nothing but the nodes that depend on it. A node whose inputs did not change since the last
        run keeps its values, also when the worker that made them is gone.
        """
        problems = self.check(workflow)
        if problems:
            raise WorkflowRefused(problems)
        wanted = order.needed(workflow, order.outputs(workflow, self.catalog))
        graph = order.graph(workflow, wanted)
        run = OneRun(workflow, self.catalog, self._calls(workflow), self._cache)
        self.watcher.starting(len(graph))
        self._running = run
        try:
            schedule.run(graph, run.lanes(graph), run.node, self.interrupt)
        finally:
            self._running = None
            self._cache = run.worth_keeping()
        return run.report()

    def interrupt(self) -> None:
        """Interrupt the nodes that are running; the rest of the run is skipped."""
        run = self._running
        if run is not None:
            run.interrupt()

    def forget(self) -> None:
        """Drop every remembered value and every node instance in the living workers: the next run runs every node anew."""
        self._cache = {}
        for plan in self.plans:
            if self.pool.record(plan) is None:
                continue
            try:
                self.pool.call(plan, "comfy_env.worker.nodes:forget", str(plan.root), f"{self._token}:")
            except ComfyEnvError as error:
                log.warning("the node instances in %s could not be dropped: %s", plan.key, error.message)

    def _refusals(self, workflow: Workflow) -> Iterable[WorkflowError]:
        calls = self._calls(workflow)
        for id in sorted(order.needed(workflow, order.outputs(workflow, self.catalog))):
            node = workflow.nodes[id]
            reason = calls.refusal(node, self.catalog.classes[node.class_type])
            if reason:
                yield WrongValue(reason, node_id=id, class_type=node.class_type)

    def _calls(self, workflow: Workflow) -> NodeCalls:
        return NodeCalls(self.pool, self.watcher, self._token, uuid.uuid4().hex, workflow.prompt)
