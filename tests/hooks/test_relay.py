"""The relay: one backend is asked, and no answer's type is trusted."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from comfy_env.errors import BackendError, InterpreterMissing
from comfy_env.hooks import Relay, hookimpl
from comfy_env.values import Canary, Changes, EnvPlan, EnvState, EnvStatus, Killed, Lanes, Proof, Released, Want
from tests.hooks.worlds import Plain, StillEndpoint, StillLane, StillProcess, a_launch

CANARY = Canary(b"x", "digest")


def ask(relay, verb):
    process, lanes = StillProcess(), Lanes(StillLane(), StillLane())
    return {
        "spawn": lambda: relay.spawn(a_launch()),
        "transport": lambda: relay.transport(process, a_launch()),
        "verify": lambda: relay.verify(process, lanes, CANARY),
        "release": lambda: relay.release(process, lanes, Want()),
        "kill": lambda: relay.kill(process, "asked", True),
    }[verb]()


VERBS = {"spawn": StillProcess, "transport": Lanes, "verify": Proof, "release": Released, "kill": Killed}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_returns_what_the_backend_answers(verb):
    backend = Plain()
    assert isinstance(ask(Relay("plain", backend), verb), VERBS[verb])
    assert backend.asked == [verb]


@pytest.mark.row("X12")
@pytest.mark.parametrize("wrong", [None, 7, "text", object()], ids=["None", "int", "str", "object"])
@pytest.mark.parametrize("verb", VERBS)
def test_an_answer_of_the_wrong_type_is_refused_naming_backend_and_verb(verb, wrong):
    with pytest.raises(BackendError, match=f"backend 'plain': {verb} returned (None|a (int|str|object))"):
        ask(Relay("plain", Plain(**{verb: wrong})), verb)


@pytest.mark.row("X12")
@pytest.mark.parametrize("verb", VERBS)
def test_an_exception_of_a_hook_arrives_as_a_backend_error_with_its_cause(verb):
    problem = ZeroDivisionError("oops")
    with pytest.raises(BackendError, match=f"backend 'plain': {verb} raised ZeroDivisionError: oops") as caught:
        ask(Relay("plain", Plain(**{verb: problem})), verb)
    assert caught.value.__cause__ is problem


class Own(BaseException):
    """No Exception."""


@pytest.mark.parametrize("problem", [SystemExit("enough"), KeyboardInterrupt("enough"), GeneratorExit("enough"), Own("enough")],
                         ids=lambda problem: type(problem).__name__)
@pytest.mark.parametrize("verb", VERBS)
def test_a_hook_that_raises_no_exception_but_something_wider_is_told_the_same_way(verb, problem):
    with ThreadPoolExecutor(1) as thread:
        told = thread.submit(ask, Relay("plain", Plain(**{verb: problem})), verb).exception(20)
    assert isinstance(told, BackendError) and told.__cause__ is problem
    assert told.message == f"backend 'plain': {verb} raised {type(problem).__name__}: enough"


@pytest.mark.parametrize("problem", [SystemExit, KeyboardInterrupt])
def test_what_a_signals_handler_raises_on_the_main_thread_passes_through(problem):
    with pytest.raises(problem):
        ask(Relay("plain", Plain(spawn=problem())), "spawn")


@pytest.mark.parametrize("verb", VERBS)
def test_an_error_of_our_own_tree_passes_unchanged(verb):
    problem = InterpreterMissing("no python", env="demo")
    with pytest.raises(InterpreterMissing) as caught:
        ask(Relay("plain", Plain(**{verb: problem})), verb)
    assert caught.value is problem


def test_a_failed_spawn_names_environment_and_generation():
    with pytest.raises(BackendError) as caught:
        Relay("plain", Plain(spawn=None)).spawn(a_launch())
    assert (caught.value.env, caught.value.generation) == ("demo", 3)


@pytest.mark.parametrize("pid", [0, 1, -5, "12", True, 3.0])
def test_a_process_with_an_impossible_pid_is_refused(pid):
    process = StillProcess()
    process.pid = pid
    with pytest.raises(BackendError, match="spawn returned a Process whose pid is"):
        Relay("plain", Plain(spawn=process)).spawn(a_launch())


def test_lanes_whose_side_is_no_lane_are_refused_by_that_lane():
    with pytest.raises(BackendError, match="whose side lane is None"):
        Relay("plain", Plain(transport=Lanes(StillLane(), None))).transport(StillProcess(), a_launch())


def test_a_backend_may_bring_its_own_lanes_class():
    class Far:
        main = side = StillLane()
        hello = {}

        def close(self):
            """Nothing is open."""

    far = Far()
    assert Relay("plain", Plain(transport=far)).transport(StillProcess(), a_launch()) is far


def test_an_answer_whose_attributes_raise_is_refused_by_name():
    class Trap(StillProcess):
        @property
        def outputs(self):
            raise OSError("trap")

    with pytest.raises(BackendError, match="spawn raised OSError: trap"):
        Relay("plain", Plain(spawn=Trap())).spawn(a_launch())


@pytest.mark.parametrize("freed, held", [(-1, 0), (0, -1), (1.5, 0), (None, 0)])
def test_a_receipt_that_is_no_count_of_bytes_is_refused(freed, held):
    with pytest.raises(BackendError, match="whole numbers of bytes"):
        ask(Relay("plain", Plain(release=Released(freed, held))), "release")


def test_two_backends_have_relays_that_do_not_know_each_other():
    quiet, other = Plain(kill=None), Plain()
    relay = Relay("quiet", quiet)
    Relay("other", other)
    with pytest.raises(BackendError, match="'quiet'"):
        relay.kill(StillProcess(), "asked", True)
    assert other.asked == []


# ---- launch and wrappers

class Line:
    """A wrapper that appends to the program line and tells what it saw."""

    def __init__(self, word):
        self.word = word
        self.saw = None

    @hookimpl
    def comfy_env_launch(self, launch):
        self.saw = launch.argv
        return replace(launch, argv=(*launch.argv, self.word))


def wrapped(*wrappers):
    return Relay("plain", Plain(), [(f"wrapper {number}", wrapper) for number, wrapper in enumerate(wrappers)])


def test_each_wrapper_in_order_sees_the_launch_of_the_one_before():
    first, second = Line("a"), Line("b")
    assert wrapped(first, second).launch(a_launch()).argv == ("python", "worker", "a", "b")
    assert (first.saw, second.saw) == (("python", "worker"), ("python", "worker", "a"))


def test_a_wrapper_that_returns_none_leaves_the_launch():
    class Shy:
        @hookimpl
        def comfy_env_launch(self, launch):
            return None

    launch = a_launch()
    assert wrapped(Shy()).launch(launch) is launch


def test_program_line_variables_and_limits_may_change():
    class Bold:
        @hookimpl
        def comfy_env_launch(self, launch):
            return replace(launch, argv=("bwrap", *launch.argv), variables={"B": "2"}, birth_seconds=1.0)

    changed = wrapped(Bold()).launch(a_launch())
    assert (changed.argv[0], changed.variables, changed.birth_seconds) == ("bwrap", {"B": "2"}, 1.0)


@pytest.mark.parametrize(
    "field, value",
    [("env", "other"), ("generation", 4), ("nonce", "m"), ("host_nonce", "g"), ("auth_key", b"j"), ("endpoint", StillEndpoint())],
)
def test_a_wrapper_may_not_change_what_the_core_decides(field, value):
    class Thief:
        @hookimpl
        def comfy_env_launch(self, launch):
            return replace(launch, **{field: value})

    with pytest.raises(BackendError, match=f"launch .*wrapper 0.* changed {field}"):
        wrapped(Thief()).launch(a_launch())


def test_a_wrapper_that_returns_no_launch_or_raises_is_named():
    class Odd:
        @hookimpl
        def comfy_env_launch(self, launch):
            return {}

    class Loud:
        @hookimpl
        def comfy_env_launch(self, launch):
            raise KeyError("x")

    for wrapper, told in ((Odd(), "returned a dict"), (Loud(), "raised KeyError")):
        with pytest.raises(BackendError, match=rf"backend 'plain': launch \(wrapper 0\) {told}"):
            wrapped(wrapper).launch(a_launch())


def test_a_wrapper_sees_each_verb_and_its_outcome():
    class Tracer:
        seen = []

        @hookimpl(wrapper=True)
        def comfy_env_kill(self, process, reason, replaced):
            outcome = yield
            self.seen.append((reason, outcome))
            return outcome

    tracer = Tracer()
    killed = wrapped(tracer).kill(StillProcess(), "asked", True)
    assert tracer.seen == [("asked", killed)]


def test_a_wrapper_that_loses_the_outcome_is_refused_like_a_backend():
    class Loser:
        @hookimpl(wrapper=True)
        def comfy_env_kill(self, process, reason, replaced):
            yield

    with pytest.raises(BackendError, match="kill returned None"):
        wrapped(Loser()).kill(StillProcess(), "asked", True)


def test_a_wrapper_that_would_take_the_backends_place_is_refused():
    class Usurper:
        @hookimpl
        def comfy_env_kill(self, process, reason, replaced):
            return Killed()

    with pytest.raises(BackendError, match="wrapper 0 is refused: comfy_env_kill would take the backend's place"):
        wrapped(Usurper())


def test_a_wrapper_around_launch_is_refused():
    class Around:
        @hookimpl(wrapper=True)
        def comfy_env_launch(self, launch):
            return (yield)

    with pytest.raises(BackendError, match="comfy_env_launch cannot be a wrapper"):
        wrapped(Around())


# ---- provisioning

class Maker(Plain):
    @hookimpl
    def comfy_env_inspect(self, plan, probe):
        return self._answer("inspect", EnvState(plan.key, EnvStatus.READY))

    @hookimpl
    def comfy_env_plan(self, plan):
        return self._answer("plan", Changes(plan.key))

    @hookimpl
    def comfy_env_build(self, plan, progress):
        return self._answer("build", EnvState(plan.key, EnvStatus.READY))

    @hookimpl
    def comfy_env_remove(self, plan):
        return self._answer("remove", EnvState(plan.key, EnvStatus.MISSING))


PLAN = EnvPlan(key="demo")
MAKING = {
    "inspect": lambda relay: relay.inspect(PLAN, True),
    "plan": lambda relay: relay.plan(PLAN),
    "build": lambda relay: relay.build(PLAN, print),
    "remove": lambda relay: relay.remove(PLAN),
}


@pytest.mark.parametrize("verb", MAKING)
def test_a_backend_that_makes_environments_is_asked(verb):
    maker = Maker()
    assert MAKING[verb](Relay("maker", maker)).key == "demo"
    assert maker.asked == [verb]


@pytest.mark.parametrize("verb", MAKING)
def test_a_wrong_answer_about_an_environment_is_refused(verb):
    with pytest.raises(BackendError, match=f"backend 'maker': {verb} returned None"):
        MAKING[verb](Relay("maker", Maker(**{verb: None})))


def test_a_backend_that_makes_no_environments_says_so():
    relay = Relay("plain", Plain())
    assert relay.inspect(PLAN, True) is None
    assert (relay.provisions, Relay("maker", Maker()).provisions) == (False, True)
    for verb in ("plan", "build", "remove"):
        with pytest.raises(BackendError, match=f"backend 'plain': {verb} is not offered"):
            MAKING[verb](relay)
