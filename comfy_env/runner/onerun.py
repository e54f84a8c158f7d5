"""One run of one workflow: what each node gave, and how it went."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from comfy_env.errors import ComfyEnvError, Interrupted
from comfy_env.runner import report
from comfy_env.runner.catalog import Catalog, NodeClass
from comfy_env.runner.mapping import Outcome
from comfy_env.runner.nodecalls import NodeCalls
from comfy_env.runner.problems import NodeFailed
from comfy_env.runner.report import Report, Row
from comfy_env.runner.signatures import signature
from comfy_env.runner.workflow import Node, Workflow
from comfy_env.values import RemoteRef

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What a node gave, under the signature it gave it for."""

    signature: str
    outcome: Outcome
    row: Row


class OneRun:
    """Runs single nodes when told to, from several threads, each node once and after all it is linked to."""

    def __init__(self, workflow: Workflow, catalog: Catalog, calls: NodeCalls, cache: Mapping[str, Result]) -> None:
        self._workflow = workflow
        self._catalog = catalog
        self._calls = calls
        self._cache = cache
        self._results: dict[str, Result] = {}
        self._rows: list[Row] = []
        self._busy: dict[str, NodeClass] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._born = time.monotonic()

    def lanes(self, ids: Iterable[str]) -> dict[str, str]:
        """Return {node: key of the environment it runs in}."""
        return {id: self._kind(id).home.plan.key for id in ids}

    def node(self, id: str) -> None:
        """Run one node, or say why not; only the row it leaves tells how it went."""
        node, kind = self._workflow.nodes[id], self._kind(id)
        with self._lock:
            self._busy[id] = kind
        try:
            row = self._skipped(node, kind) or self._attempt(node, kind)
        finally:
            with self._lock:
                del self._busy[id]
        self._rows.append(row)
        self._calls.watcher.ended(row)

    def interrupt(self) -> None:
        """Interrupt the nodes that run now and let no other begin."""
        self._stop.set()
        with self._lock:
            busy = list(self._busy.values())
        for kind in busy:
            self._calls.pool.interrupt(kind.home.plan)

    def report(self) -> Report:
        """Return what happened."""
        outputs = {id: result.outcome.outputs for id, result in self._results.items()}
        ui = {id: result.outcome.ui for id, result in self._results.items() if result.outcome.ui}
        return Report(tuple(self._rows), outputs, ui, time.monotonic() - self._born, self._stop.is_set())

    def worth_keeping(self) -> dict[str, Result]:
        """Return what the next run may use: this run's results, and older ones of nodes it did not get to."""
        older = {id: result for id, result in self._cache.items() if id in self._workflow.nodes}
        return {**older, **self._results}

    def _kind(self, id: str) -> NodeClass:
        return self._catalog.classes[self._workflow.nodes[id].class_type]

    def _skipped(self, node: Node, kind: NodeClass) -> Row | None:
        missing = sorted({link.node for link in node.links.values() if link.node not in self._results})
        reason = "the run was interrupted" if self._stop.is_set() else f"node {missing[0]} has no result" if missing else ""
        return replace(_row(node, kind, report.SKIPPED), reason=reason) if reason else None

    def _attempt(self, node: Node, kind: NodeClass) -> Row:
        begun = time.monotonic()
        try:
            sources = {link.node: self._results[link.node] for link in node.links.values()}
            mark = signature(node, kind, {id: source.signature for id, source in sources.items()}, self._calls.changed(node, kind))
            kept = self._cache.get(node.id)
            if kept is not None and kept.signature == mark and self._alive(kept, kind):
                self._results[node.id] = kept
                return replace(kept.row, state=report.CACHED, title=node.title or kind.display_name)
            return self._executed(node, kind, mark, {id: source.outcome for id, source in sources.items()}, begun)
        except ComfyEnvError as error:
            return self._failed(node, kind, error, begun)
        except Exception as error:  # whatever a pack answered or a file holds is this node's failure and ends no other
            log.debug("node %s (%s)", node.id, kind.name, exc_info=True)
            return self._failed(node, kind, NodeFailed(f"its answer cannot be used: {type(error).__name__}: {error}"), begun)

    def _executed(self, node: Node, kind: NodeClass, mark: str, sources: Mapping[str, Outcome], begun: float) -> Row:
        self._calls.watcher.started(node, kind)
        outcome, calls = self._calls.execute(node, kind, sources)
        record = self._calls.pool.record(kind.home.plan)
        row = replace(_row(node, kind, report.DONE), seconds=time.monotonic() - begun, calls=calls)
        if record is not None:
            row = replace(row, pid=record.pid, generation=record.generation)
        self._results[node.id] = Result(mark, outcome, row)
        return row

    def _failed(self, node: Node, kind: NodeClass, error: ComfyEnvError, begun: float) -> Row:
        if isinstance(error, Interrupted):
            self._stop.set()
        failure = NodeFailed.of(error, node_id=node.id, class_type=kind.name, env=kind.home.plan.key)
        return replace(_row(node, kind, report.FAILED), seconds=time.monotonic() - begun, calls=1, error=failure,
                       pid=error.pid, generation=error.generation, reason=error.message)

    def _alive(self, kept: Result, kind: NodeClass) -> bool:
        """Say whether no value of a kept result lived in a worker that is gone."""
        references = [value for values in kept.outcome.outputs for value in values if isinstance(value, RemoteRef)]
        if not references:
            return True
        record = self._calls.pool.record(kind.home.plan)
        return record is not None and all(reference.generation == record.generation for reference in references)


def _row(node: Node, kind: NodeClass, state: str) -> Row:
    home = kind.home
    title = node.title or kind.display_name
    return Row(node.id, kind.name, title, home.pack, home.plan.key, state, python=home.python, libraries=home.libraries)
