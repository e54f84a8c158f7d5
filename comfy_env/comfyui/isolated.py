"""One environment of a pack in this ComfyUI: its classes as they are known, and every way to ask its worker."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from comfy_env import errors
from comfy_env.comfyui import choices, core, failures, paths, progress
from comfy_env.comfyui.fingerprints import ALWAYS, Fingerprints
from comfy_env.comfyui.home import ENTRY, Home, Surroundings
from comfy_env.packs.plain import decode
from comfy_env.packs.snapshot import Snapshot
from comfy_env.values import CallOptions, EnvPlan, NodeContext, RemoteRef

log = logging.getLogger(__name__)
MEMO = 1.0   # s that a menu's inputs are remembered within one epoch

Callbacks = Mapping[str, Callable[..., Any]]


@dataclass
class Node:
    """A class of the pack as it is described now; `info` is replaced when a worker describes it anew."""

    name: str
    info: Mapping[str, Any]
    memo: tuple[int, float, Any] = (-1, 0.0, None)

    @property
    def methods(self) -> Mapping[str, Any]:
        methods: Mapping[str, Any] = self.info.get("methods", {})
        return methods


@dataclass(eq=False)
class Isolated:
    """``forgotten`` are keys of proxies that are gone; finalizers only append to it."""

    host: Surroundings
    plan: EnvPlan
    home: Home
    snapshot: Snapshot
    nodes: dict[str, Node] = field(default_factory=dict)
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    forgotten: deque[str] = field(default_factory=deque)
    beside: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    described: int = 0   # the generation that was asked to describe the pack anew
    reference_types: frozenset[str] = frozenset()   # declared types whose values were seen to stay in the worker

    def __post_init__(self) -> None:
        self.nodes = {name: Node(name, info) for name, info in self.snapshot.nodes.items()}
        self._where = self.home.order()

    def renew(self, snapshot: Snapshot) -> None:
        """Take a newer description of the same classes; those that are new or of another kind appear when ComfyUI starts again."""
        self.snapshot = snapshot
        for name, info in snapshot.nodes.items():
            if name in self.nodes and info.get("api") == self.nodes[name].info.get("api"):
                self.nodes[name].info = info

    # ------------------------------------------------------------ menus and checks, on the event loop's thread

    def declared(self, node: Node) -> Any:
        """Return a class's inputs as written, from the worker if one answers, and remembered for a moment."""
        if "as_read" in node.info:   # the class may be of another kind than what stands for it, and a worker tells of the class
            return node.info.get("input")
        epoch, then, written = node.memo
        now = time.monotonic()
        if epoch == self.host.epoch.number and now - then < MEMO:
            return written
        written = self._ask(node, "refresh_input_types", {}, node.info.get("input"))
        node.memo = (self.host.epoch.number, now, written)
        return written

    def inputs(self, node: Node) -> Any:
        """Return a V1 class's INPUT_TYPES."""
        if "broken" in node.info:
            raise errors.ComfyEnvError(f"{node.name}: {node.info['broken']}", env=self.plan.key)
        written = self.declared(node)
        inputs = decode(written, paths.file_names)
        return inputs if written is not node.info.get("input") else choices.lenient(inputs)

    def validated(self, node: Node, kwargs: dict[str, Any]) -> Any:
        """Return the author's verdict on constants; True where no worker can say, which then decides before it runs."""
        verdict = self._ask(node, "validate", kwargs, _UNKNOWN)
        if verdict is _UNKNOWN:
            self._beside("validate", kwargs)
            return True
        return verdict

    def fingerprint(self, node: Node, kwargs: dict[str, Any]) -> Any:
        """Return core's token for the author's fingerprint of these constants."""
        mark = self._ask(node, "fingerprint", kwargs, _UNKNOWN)
        if mark is not _UNKNOWN:
            return self.fingerprints.told(node.name, kwargs, mark)
        token, known = self.fingerprints.remembered(node.name, kwargs)
        if not known:
            self._beside("fingerprint", kwargs)
        return token

    def _ask(self, node: Node, question: str, kwargs: dict[str, Any], otherwise: Any) -> Any:
        begun = time.monotonic()
        facts = {"pack": self.home.module, "class": node.name, "kwargs": kwargs}
        reply = self.host.pool.ask_aside(self.plan, question, facts)
        if reply is None or "absent" in reply:
            return otherwise
        if "error" in reply:
            place = core.executing()
            where = f"node {place.node_id} " if place is not None else ""
            seconds = time.monotonic() - begun
            log.warning("%s of %s%s in env %s failed after %.3f s: %s", question, where, node.name, self.plan.key, seconds, reply["error"])
            return _FAILED.get(question, lambda error, known: known)(reply["error"], otherwise)
        return reply["value"]

    def _beside(self, what: str, kwargs: dict[str, Any]) -> None:
        """Have the next call of the node that is being looked at answer a question before it runs."""
        place = core.executing()
        if place is not None:
            self.beside.setdefault((place.prompt_id, place.node_id), {})[what] = kwargs
            while len(self.beside) > 10_000:
                self.beside.pop(next(iter(self.beside)), None)

    # ------------------------------------------------------------ calls

    def order(self, node: Node, verb: str, kwargs: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Return the order for one call of the node that core executes on this thread."""
        place = core.executing()
        prompt, unique, index = ("", "", None) if place is None else (place.prompt_id, place.node_id, place.list_index)
        order = {
            "state": self.host.state.version(), "pack": self._where, "class": node.name, "verb": verb, "kwargs": kwargs,
            "prompt": prompt, "node": unique, "index": index, "inference": core.inference_mode(),
            "thread": threading.current_thread().name, **more,
        }
        if self.forgotten:
            order["forget"] = [self.forgotten.popleft() for _ in range(len(self.forgotten))]
        if self.beside and verb != "check_lazy_status":
            order.update(self.beside.pop((prompt, unique), {}))
        return order

    def options(self, node: Node, order: dict[str, Any], callbacks: Callbacks | None = None) -> CallOptions:
        """Return how a call of a node is run."""
        context = NodeContext(str(order["node"]), str(order["prompt"]), str(node.name))   # a graph of a node's own making may have numbers
        offered = self.host.callbacks if not callbacks else {**self.host.callbacks, **callbacks}
        return CallOptions(on_progress=progress.deliver, node=context, callbacks=offered)

    def call(self, node: Node, order: dict[str, Any], callbacks: Callbacks | None = None) -> dict[str, Any]:
        """Run an order in the worker on this thread and return its answer; raises what the node would have raised."""
        asked = order.get("fingerprint")
        with self.host.interrupts.during(self.plan.key):
            answer = self._call("run", node, self.options(node, order, callbacks), order)
        self.take(node, asked, answer)
        return answer

    def take(self, node: Node, asked: dict[str, Any] | None, answer: dict[str, Any]) -> None:
        """Take over what came with an answer beside the value."""
        if asked is not None:
            mark = answer.get("mark", ALWAYS)
            self.fingerprints.bind(node.name, asked, mark)
        self.host.after_call(self, answer.get("generation", 0), answer.get("models", ()))

    def note_references(self, values: Sequence[Any], returns: Sequence[Any]) -> None:
        """Remember which declared types stand for objects that stay in the worker."""
        for value, declared in zip(values, returns, strict=False):
            if isinstance(value, RemoteRef) and isinstance(declared, str) and declared not in self.reference_types:
                self.reference_types |= {str.__str__(declared)}

    def _call(self, function: str, node: Node, options: CallOptions, *args: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self.host.pool.call(self.plan, f"{ENTRY}:{function}", *args, options=options)
            return answer
        except errors.ComfyEnvError as error:
            raise self.told(error)  # noqa: B904 - it carries its cause

    def told(self, error: errors.ComfyEnvError) -> BaseException:
        """Return what the node's caller gets for an error of the pool; core forgets first what died with a worker."""
        if isinstance(error, _DEATHS):
            self.host.worker_ended(self.plan.key, error.generation)
        told = failures.translated(error, self.plan.key)
        if told is not error:
            told.__cause__ = error
        return told

    # ------------------------------------------------------------ instances

    def watch(self, proxy: Any, key: str) -> None:
        """Have the worker's twin of a proxy forgotten once the proxy is gone."""
        weakref.finalize(proxy, self.forgotten.append, key).atexit = False


_DEATHS = (errors.WorkerCrashed, errors.CallSilent, errors.Interrupted)
_UNKNOWN: Any = object()
_FAILED: dict[str, Callable[[str, Any], Any]] = {
    "fingerprint": lambda error, known: ALWAYS,     # as core does: an IS_CHANGED that raises counts as changed
    "validate": lambda error, known: error,
}
