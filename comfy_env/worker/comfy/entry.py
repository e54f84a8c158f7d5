"""What ComfyUI's proxies call in a worker, by name: describe a pack, run a node, forget instances.

An order is a dict: where the pack is, which class and instance, which node of which prompt, and what to call it with.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any

from .. import callback
from ..node_packs import finished
from ..wire import coded
from . import describe as describing
from . import hidden, questions, results, tasks, twins, where
from .census import census
from .mirror import mirror
from .outbox import outbox
from .packs import Pack, packs


def describe(order: dict[str, Any]) -> dict[str, Any]:
    """Return everything a host must know of a pack to stand in for it."""
    return describing.describe(_ready(order))


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Call one function of a node and return what it returned, taken apart, with what else the host asked for."""
    pack = _ready(order)
    cls = pack.node_class(order["class"])
    answer = _asked_beside(cls, order)
    twin = _run(pack, cls, order, answer)
    if twin is not None:
        answer.update(twin.news())
    return _with_census(answer)


def begin(order: dict[str, Any]) -> dict[str, Any]:
    """Start a coroutine function of a node; return its answer if it ends at once, else the number to collect it by."""
    pack = _ready(order)
    cls = pack.node_class(order["class"])
    beside = _asked_beside(cls, order)
    call, twin = _function(pack, cls, order)

    async def work() -> dict[str, Any]:
        with where.At(order["prompt"], order["node"]), _core_context(order):
            answer = {**beside, "value": results.taken_apart(await call(**order.pop("kwargs")))}
        return _with_census({**answer, **(twin.news() if twin is not None else {})})

    return collect(tasks.tasks.start(work()))


def collect(number: int, seconds: float = tasks.TURN) -> dict[str, Any]:
    """Return the answer of a started function, or {"pending": number} if it is not over after so long.

    Ends early when another one is over, so that its asker gets its turn.
    """
    answer = tasks.tasks.result(number, seconds)
    outbox.flush()
    return {"pending": number} if answer is None else answer


def _with_census(answer: dict[str, Any]) -> dict[str, Any]:
    answer["generation"] = callback.generation()
    models = census.models()
    if models:
        answer["models"] = models
    return answer


def cancel(number: int) -> None:
    """Cancel a started function; nobody asks for its answer any more."""
    tasks.tasks.cancel(number)


def forget(order: dict[str, Any]) -> int:
    """Drop twins of instances that the host dropped; return how many are left."""
    return len(_ready(order).twins)


def _ready(order: dict[str, Any]) -> Pack:
    """Return the order's pack in a worker that looks like its ComfyUI."""
    mirror.ensure(order.get("state"))
    pack = packs.load(order["pack"])
    if "kwargs" in order:
        order["kwargs"] = coded.opened(order["kwargs"])
    for key in order.get("forget", ()):
        pack.twins.pop(key, None)
    return pack


def _asked_beside(cls: Any, order: dict[str, Any]) -> dict[str, Any]:
    """Answer what could not be asked before the run because no worker was there: the verdict and the fingerprint."""
    if "validate" in order:
        verdict = questions.validate(cls, order["validate"])
        if verdict is not True:
            raise ValueError(f"Custom validation failed for node: {verdict}")
    return {"mark": questions.fingerprint(cls, order["fingerprint"])} if "fingerprint" in order else {}


def _function(pack: Pack, cls: Any, order: dict[str, Any]) -> tuple[Any, Any]:
    """Return the function to call, and the twin it belongs to if it is a V1 instance's."""
    if questions.is_v3(cls):
        return _v3_function(cls, order), None
    twin = twins.twin(pack, cls, order["key"], order.get("has_state", False))
    order["kwargs"] = hidden.arrived(order["kwargs"], order.get("graphs", ()))
    return getattr(twin.instance, order["verb"]), twin


def _v3_function(cls: Any, order: dict[str, Any]) -> Any:
    clone = questions.prepared(cls, hidden.keyed(hidden.arrived(order.get("hidden") or {}, order.get("graphs", ()))))
    name = order["verb"]
    return getattr(clone, cls.FUNCTION if name == "execute" else name)


def _run(pack: Pack, cls: Any, order: dict[str, Any], answer: dict[str, Any]) -> Any:
    """Run the function in surroundings as it has them in ComfyUI (the node's place, the thread's name, inference mode); return its twin."""
    thread = threading.current_thread()
    name, thread.name = thread.name, order.get("thread") or thread.name
    try:
        with where.At(order["prompt"], order["node"]), _core_context(order), _inference_mode(order):
            call, twin = _function(pack, cls, order)
            answer["value"] = results.taken_apart(finished(call(**order.pop("kwargs"))))
            return twin
    finally:
        thread.name = name
        outbox.flush()


_NOTHING: Any = contextlib.nullcontext()


def _core_context(order: dict[str, Any]) -> Any:
    """Return core's own context of the node, with the graph builder's prefix set, as far as those modules are loaded."""
    graphs = sys.modules.get("comfy_execution.graph_utils")
    if graphs is not None and order["verb"] != "check_lazy_status":
        graphs.GraphBuilder.set_default_prefix(order["node"], order.get("index") or 0, 0)
    utils = sys.modules.get("comfy_execution.utils")
    return _NOTHING if utils is None else utils.CurrentNodeContext(order["prompt"], order["node"], order.get("index"))


def _inference_mode(order: dict[str, Any]) -> Any:
    torch = sys.modules.get("torch")
    return _NOTHING if torch is None else torch.inference_mode(bool(order.get("inference")))
