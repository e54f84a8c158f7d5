"""Observers hear everything and can hurt nobody."""

import logging

import pytest

from comfy_env.hooks import Observers, hookimpl
from comfy_env.hooks.checks import PREFIX
from comfy_env.hooks.observe import Observe

ARGUMENTS = {
    "comfy_env_worker_born": ("record",),
    "comfy_env_worker_proved": ("record",),
    "comfy_env_worker_demoted": ("record", "why"),
    "comfy_env_worker_refused": ("record", "why"),
    "comfy_env_worker_retired": ("record", "reason"),
    "comfy_env_worker_reaped": ("record",),
    "comfy_env_worker_released": ("record", "freed", "held"),
    "comfy_env_worker_wedged": ("record", "note"),
    "comfy_env_worker_parked": ("record", "until"),
    "comfy_env_call_started": ("record", "call"),
    "comfy_env_call_ended": ("record", "call"),
    "comfy_env_env_built": ("state",),
    "comfy_env_announce": ("event",),
}
HOOKS = {name: function for name, function in vars(Observe).items() if name.startswith(PREFIX)}


class Ear:
    def __init__(self):
        self.heard = []

    @hookimpl
    def comfy_env_worker_born(self, record):
        self.heard.append(record)


class Loud:
    @hookimpl
    def comfy_env_worker_born(self, record):
        raise ValueError("loud")

    @hookimpl
    def comfy_env_worker_proved(self, record):
        raise ValueError("loud again")


def test_every_observer_hears_in_the_order_given_and_by_either_name():
    heard = []

    def ear(word):
        class Named:
            @hookimpl
            def comfy_env_worker_born(self, record):
                heard.append((word, record))

        return Named()

    observers = Observers([ear("first"), ear("second")])
    observers.tell("worker_born", record=1)
    observers.tell("comfy_env_worker_born", {"record": 2})
    assert heard == [("first", 1), ("second", 1), ("first", 2), ("second", 2)]


def test_an_observer_that_raises_is_logged_once_per_hook_and_the_others_still_hear(caplog):
    loud, ear = Loud(), Ear()
    observers = Observers([loud, ear])
    with caplog.at_level(logging.ERROR):
        for number in range(5):
            observers.tell("worker_born", record=number)
            observers.tell("worker_proved", record=number)
    assert ear.heard == [0, 1, 2, 3, 4]
    assert [record.args[1] for record in caplog.records] == ["comfy_env_worker_born", "comfy_env_worker_proved"]


def test_the_notifications_and_their_arguments_are_these():
    assert {name: code.co_varnames[1:code.co_argcount] for name, function in HOOKS.items() if (code := function.__code__)} == ARGUMENTS


@pytest.mark.parametrize("name, wanted", ARGUMENTS.items())
def test_every_notification_reaches_an_observer_with_its_arguments(name, wanted):
    heard = {}
    source = f"def {name}({', '.join(wanted)}):\n    heard.update({', '.join(f'{n}={n}' for n in wanted)})"
    scope = {"heard": heard}
    exec(source, scope)
    ear = type("EarOf", (), {name: staticmethod(hookimpl(scope[name]))})()
    facts = {argument: object() for argument in wanted}
    Observers([ear]).tell(name, facts)
    assert heard == facts


def test_observers_that_are_nobody_are_false_so_that_nothing_need_be_gathered_for_them():
    assert not Observers()
    assert len(Observers([Ear(), Ear()])) == 2
