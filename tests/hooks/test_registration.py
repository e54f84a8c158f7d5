"""Bad plugins are refused at registration, by plugin, hook and argument."""

import sys
import types

import pytest

from comfy_env.errors import BackendError
from comfy_env.hooks import Observers, Relay, hookimpl
from comfy_env.hooks.checks import PREFIX, REQUIRED
from comfy_env.hooks.observe import Observe
from comfy_env.hooks.provision import Provision
from comfy_env.hooks.specs import Lifecycle
from comfy_env.values import CAPABILITIES, Killed
from tests.hooks.worlds import Plain


def refusal(backend):
    with pytest.raises(BackendError) as caught:
        Relay("mine", backend)
    assert str(caught.value).startswith("backend 'mine' is refused: ")
    return str(caught.value)


def test_a_misspelled_hook_is_refused_with_the_name_it_resembles():
    class Wrong(Plain):
        @hookimpl
        def comfy_env_inspekt(self, plan, probe):
            """Never called."""

    assert "comfy_env_inspekt is no hook (did you mean comfy_env_inspect?)" in refusal(Wrong())


def test_an_unknown_hook_is_refused_with_the_list_of_hooks():
    class Wrong(Plain):
        @hookimpl
        def comfy_env_quux_of_nothing(self):
            """Never called."""

    assert "comfy_env_quux_of_nothing is no hook; the hooks are comfy_env_build" in refusal(Wrong())


def test_a_marked_function_without_our_prefix_is_refused():
    class Wrong(Plain):
        @hookimpl
        def spawn(self, launch):
            """Never called."""

    assert "spawn is no hook" in refusal(Wrong())


@pytest.mark.parametrize("name", [name for spec in (Lifecycle, Provision) for name in vars(spec) if name.startswith(PREFIX)])
def test_a_wrong_argument_is_refused_by_hook_and_argument(name):
    def hook(self, plann):
        """Never called."""

    hook.__name__ = hook.__qualname__ = name
    wrong = type("Wrong", (Plain,), {name: hookimpl(hook)})
    assert f"{name}: no argument 'plann'" in refusal(wrong())


def test_an_argument_with_a_default_is_refused_because_it_would_stay_empty():
    class Wrong(Plain):
        @hookimpl
        def comfy_env_kill(self, process, reason="asked"):
            return Killed()

    assert "comfy_env_kill: argument 'reason' has a default" in refusal(Wrong())


def test_star_arguments_are_refused_because_they_would_stay_empty():
    class Wrong(Plain):
        @hookimpl
        def comfy_env_kill(self, **facts):
            return Killed()

    assert "comfy_env_kill: *facts would stay empty" in refusal(Wrong())


def test_fewer_arguments_than_documented_are_allowed():
    class Brief(Plain):
        @hookimpl
        def comfy_env_kill(self):
            return Killed(note="brief")

    assert Relay("mine", Brief()).kill(None, "asked", False).note == "brief"


def test_a_hook_without_its_marker_is_refused():
    class Wrong(Plain):
        def comfy_env_inspect(self, plan, probe):
            """Never called."""

    assert "comfy_env_inspect lacks the @hookimpl marker" in refusal(Wrong())


def test_a_class_is_refused_because_an_instance_is_wanted():
    assert "Plain is a class; give an instance of it" in refusal(Plain)


@pytest.mark.parametrize("verb", REQUIRED)
def test_a_backend_without_one_of_the_five_verbs_is_refused(verb):
    rest = {name: getattr(Plain, name) for name in REQUIRED if name != verb}
    backend = type("Part", (), {"capabilities": frozenset(), **rest})()
    assert f"it lacks {verb}\n" in refusal(backend) + "\n"


def test_a_module_can_be_a_backend():
    module = types.ModuleType("my_backend")
    module.capabilities = frozenset()
    plain = Plain()
    for verb in REQUIRED:
        setattr(module, verb, getattr(plain, verb))
    assert Relay("mine", module).kill(None, "asked", False) == Killed()


@pytest.mark.parametrize("claimed", [None, "own_process", ["own_process"]])
def test_capabilities_that_are_no_set_are_refused(claimed):
    backend = Plain()
    backend.capabilities = claimed
    assert "declares no `capabilities`" in refusal(backend)


def test_an_unknown_capability_is_refused_by_name():
    backend = Plain()
    backend.capabilities = frozenset({"kilable", "own_process"})
    assert "'kilable' (did you mean 'killable'?)" in refusal(backend)


def test_every_known_capability_is_accepted():
    backend = Plain()
    backend.capabilities = set(CAPABILITIES)
    assert Relay("mine", backend).capabilities == CAPABILITIES


def test_an_observer_with_a_misspelled_hook_or_argument_is_refused():
    class Hook:
        @hookimpl
        def comfy_env_worker_borne(self, record):
            """Never called."""

    class Argument:
        @hookimpl
        def comfy_env_worker_born(self, recrod):
            """Never called."""

    class Around:
        @hookimpl(wrapper=True)
        def comfy_env_worker_born(self, record):
            yield

    for wrong, told in ((Hook(), "did you mean comfy_env_worker_born"), (Argument(), "no argument 'recrod'"), (Around(), "only listen")):
        with pytest.raises(BackendError, match=told):
            Observers([wrong])


def test_every_hook_tells_in_its_docstring_what_it_is_for():
    for spec in (Lifecycle, Provision, Observe):
        for name, function in vars(spec).items():
            if name.startswith(PREFIX):
                assert function.__doc__ and len(function.__doc__) > 10, name


def test_the_worker_side_never_needs_pluggy():
    worker = [name for name in sys.modules if name.startswith("comfy_env.worker")]
    for name in worker:
        assert "pluggy" not in vars(sys.modules[name]), name
