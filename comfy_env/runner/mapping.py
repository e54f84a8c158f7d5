"""How ComfyUI calls V1 nodes over lists: every value is a list, a plain one a list of one.

A node without INPUT_IS_LIST is called once per element of its longest input, shorter ones repeat their last; a node with
it is called once with the lists themselves. An output named by OUTPUT_IS_LIST is taken apart, any other becomes one
element per call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from comfy_env.packs import nodes
from comfy_env.runner.catalog import NodeClass
from comfy_env.runner.problems import NodeFailed


@dataclass
class Outcome:
    """What all calls of one node gave: a list of values per output, and what is meant for the screen."""

    outputs: list[list[Any]] = field(default_factory=list)
    ui: dict[str, list[Any]] = field(default_factory=dict)


def calls(kind: NodeClass, inputs: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Yield the keyword arguments of each call; raises NodeFailed for a list with nothing in it."""
    if kind.input_is_list:
        yield dict(inputs)
        return
    empty = [name for name, values in inputs.items() if not values]
    if empty:
        raise NodeFailed("it was given an empty list", input=empty[0])
    for index in range(max((len(values) for values in inputs.values()), default=1)):
        yield {name: values[min(index, len(values) - 1)] for name, values in inputs.items()}


def merged(kind: NodeClass, answers: Iterable[Any]) -> Outcome:
    """Return what the answers of all calls amount to; raises NodeFailed for one that is no answer of a V1 node."""
    outcome = Outcome(outputs=[[] for _ in kind.returns])
    for answer in answers:
        values, ui = _parts(kind, answer)
        for name, shown in ui.items():
            outcome.ui.setdefault(name, []).extend(shown)
        for slot, value in enumerate(values):
            _add(kind, slot, value, outcome.outputs[slot])
    return outcome


def _parts(kind: NodeClass, answer: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not isinstance(answer, dict):
        return _values(kind, answer), {}
    if "expand" in answer:
        raise NodeFailed("it answered with a graph to expand, which only ComfyUI can run")
    return _values(kind, answer.get("result", ())), answer.get("ui") or {}


def _values(kind: NodeClass, given: Any) -> tuple[Any, ...]:
    if given is None and not kind.returns:
        return ()
    if not isinstance(given, (tuple, list)):
        raise NodeFailed(f"it returned {type(given).__name__}, not a tuple of its {len(kind.returns)} outputs")
    if len(given) < len(kind.returns) and given:
        raise NodeFailed(f"it returned {len(given)} values for its {len(kind.returns)} outputs")
    return tuple(given[: len(kind.returns)])


def _add(kind: NodeClass, slot: int, value: Any, values: list[Any]) -> None:
    declared = kind.returns[slot]
    if slot >= len(kind.output_is_list) or not kind.output_is_list[slot]:
        values.append(nodes.as_declared(declared, value))
    elif isinstance(value, (list, tuple)):
        values.extend(nodes.as_declared(declared, one) for one in value)
    else:
        raise NodeFailed(f"its output {slot} is declared a list, but it returned {type(value).__name__}")
