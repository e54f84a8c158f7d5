"""The clock and the ports that stand in for a host: they do what the ports promise and keep what they hear."""

import inspect

import pytest

from comfy_env import ports
from comfy_env.testing.clock import MovableClock
from comfy_env.testing.fakes import FakeEvents, FakeMemory, FakePrompt, FakeShelf

PAIRS = [
    (MovableClock, ports.Clock),
    (FakeShelf, ports.StandInShelf),
    (FakePrompt, ports.Prompt),
    (FakeMemory, ports.Memory),
    (FakeEvents, ports.Events),
]


@pytest.mark.parametrize("fake, port", PAIRS, ids=lambda kind: kind.__name__)
def test_a_fake_has_every_method_of_its_port_with_the_same_arguments(fake, port):
    methods = {name: method for name, method in vars(port).items() if not name.startswith("_") and callable(method)}
    assert methods
    for name, method in methods.items():
        assert list(inspect.signature(getattr(fake, name)).parameters) == list(inspect.signature(method).parameters)


def test_the_clock_stands_until_it_is_moved_and_never_goes_back():
    clock = MovableClock(5.0)
    assert (clock.now(), clock.now()) == (5.0, 5.0)
    assert clock.advance(2.5) == clock.now() == 7.5
    with pytest.raises(ValueError, match="cannot go back by 1 s"):
        clock.advance(-1)


def test_the_ports_answer_what_the_test_decided():
    shelf, prompt, memory, events = FakeShelf(), FakePrompt(), FakeMemory("cuda:0"), FakeEvents()
    shelf.quarantine("demo", 3)
    shelf.drop_quarantine("demo")
    events.tell("born", {"pid": 7})
    prompt.id = "p1"
    assert shelf.told == [("quarantine", "demo", 3), ("drop", "demo")]
    assert events.told == [("born", {"pid": 7})]
    assert (prompt.running(), memory.tight("cuda:0"), memory.tight(None)) == ("p1", True, False)
