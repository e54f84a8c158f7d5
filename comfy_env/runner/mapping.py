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
from comfy_env.runner.values import shown


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
        for name, entries in ui.items():
            outcome.ui.setdefault(name, []).extend(entries)
        for slot, value in enumerate(values):
            _add(kind, slot, value, outcome.outputs[slot])
    return outcome


def _parts(kind: NodeClass, answer: Any) -> tuple[tuple[Any, ...], Mapping[str, Iterable[Any]]]:
    if not isinstance(answer, dict):
        return _values(kind, answer), {}
    if "expand" in answer:
        raise NodeFailed("it answered with a graph to expand, which only ComfyUI can run")
    if answer and not answer.keys() & {"ui", "result"}:
        keys = ", ".join(shown(key) for key in list(answer)[:4])
        raise NodeFailed(f"it returned a dict of {keys}; a dict holds 'ui', 'result' or both")
    return (_values(kind, answer["result"]) if answer.get("result") is not None else ()), _ui(answer.get("ui"))


def _ui(given: Any) -> Mapping[str, Iterable[Any]]:
    """Return what is meant for the screen; raises NodeFailed unless it is lists by name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise NodeFailed(f"its 'ui' is {shown(given)}; a dict of lists is wanted")
    for name, entries in given.items():
        if not isinstance(name, str) or not isinstance(entries, (list, tuple)):
            raise NodeFailed(f"its 'ui' holds {shown(name)}: {shown(entries)}; a list by name is wanted")
    return given


def _values(kind: NodeClass, given: Any) -> tuple[Any, ...]:
    if given is None and not kind.returns:
        return ()
    if not isinstance(given, (tuple, list)):
        hint = "write `return (value,)`" if len(kind.returns) == 1 else ""
        raise NodeFailed(f"it returned {shown(given)}, not a tuple of its {_outputs(kind)}", hint=hint)
    if len(given) < len(kind.returns):
        raise NodeFailed(f"it returned {len(given)} value{'' if len(given) == 1 else 's'} for its {_outputs(kind)}")
    return tuple(given[: len(kind.returns)])


def _outputs(kind: NodeClass) -> str:
    return "1 output" if len(kind.returns) == 1 else f"{len(kind.returns)} outputs"


def _add(kind: NodeClass, slot: int, value: Any, values: list[Any]) -> None:
    declared = kind.returns[slot]
    if slot >= len(kind.output_is_list) or not kind.output_is_list[slot]:
        values.append(nodes.as_declared(declared, value))
    elif isinstance(value, (list, tuple)):
        values.extend(nodes.as_declared(declared, one) for one in value)
    else:
        raise NodeFailed(f"its output {slot} is declared a list, but it returned {shown(value)}")
