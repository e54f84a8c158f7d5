"""What a caller may hand over, and what is refused before anything is done with it."""

import sys
from pathlib import Path

import pytest

from comfy_env import CallOptions, EnvPlan, NodeContext, Settings, WorkerPool
from comfy_env.errors import PlanError
from comfy_env.orchestrator.settings import OrchestratorSettings
from comfy_env.values import AgentSpec, Conda, PackId, Want


@pytest.mark.parametrize("field", ["dependencies", "indexes", "secrets", "nodes", "import_roots"])
def test_one_text_where_several_are_wanted_is_refused_and_not_taken_letter_by_letter(field):
    with pytest.raises(PlanError, match="must be several entries"):
        EnvPlan(key="text", **{field: "six"})


PLANS = [
    ({"root": 3}, "a path"), ({"root": b"/pack"}, "a path"), ({"root": ""}, "a path"), ({"interpreter": True}, "a path"),
    ({"python": 3.1}, "a version"), ({"python": (3, 10)}, "a version"), ({"python": sys.executable}, "a version"),
    ({"python": Path(sys.executable)}, "a version"), ({"backend": None}, "a text"), ({"torch": 2.4}, "a text"), ({"device": 0}, "a text"),
    ({"fallback": True}, "a text"), ({"source": Path("x")}, "a text"), ({"api": 1}, "a text"), ({"comfy": "no"}, "True or False"),
    ({"allow_source_builds": 1}, "True or False"), ({"conda": {"channels": ()}}, "a Conda"), ({"pack": "me/pack"}, "a PackId"),
    ({"dependencies": None}, "a tuple of texts"), ({"dependencies": {"numpy": "2"}}, "a tuple of texts"), ({"nodes": [3]}, "3 is among"),
    ({"indexes": [Path("wheels")]}, "is among"), ({"secrets": 5}, "a tuple of texts"), ({"import_roots": [3]}, "3 is among"),
    ({"variables": "A=1"}, "a dict of texts"), ({"variables": ["A=1"]}, "a dict of texts"),
    ({"variables": {"A": None}}, "not str: NoneType"), ({"variables": {1: "A"}}, "not int: str"),
    ({"limits": {"birth": "60"}}, "not str: str"), ({"limits": 60}, "a dict of numbers"),
]


@pytest.mark.parametrize(("fields", "told"), PLANS, ids=str)
def test_a_plans_field_of_another_type_is_refused_by_its_name_when_it_is_made(fields, told):
    with pytest.raises(PlanError, match=rf"^EnvPlan\({next(iter(fields))}=.*{told}"):
        EnvPlan(key="typed", **fields)


def test_a_variable_of_another_type_is_refused_without_its_value():
    with pytest.raises(PlanError) as caught:
        EnvPlan(key="secret", variables={"TOKEN": b"hunter2"})
    assert "TOKEN" in str(caught.value) and "hunter2" not in str(caught.value)


@pytest.mark.parametrize("python", [None, "", 3])
def test_an_existing_interpreter_must_be_a_path(python):
    with pytest.raises(PlanError, match="is wanted"):
        EnvPlan.existing(python, "existing")


def test_the_paths_of_a_plan_may_be_texts_or_paths(tmp_path):
    made = EnvPlan.existing(sys.executable, "paths", root=str(tmp_path), import_roots=[str(tmp_path), tmp_path])
    assert (made.interpreter, made.roots) == (Path(sys.executable), (tmp_path,) * 3)
    assert PackId("me/pack", folder=str(tmp_path)).folder == tmp_path  # type: ignore[arg-type]


@pytest.mark.parametrize(("make", "told"), [
    (lambda: PackId(3), "PackId.id=3.: a text"), (lambda: PackId("a", folder=3), "PackId.folder=3.: a path"),
    (lambda: Conda("conda-forge"), "channels must be several"), (lambda: Conda((), [3]), "Conda.dependencies=.*3 is among"),
    (lambda: Want("3"), "Want.bytes='3'"), (lambda: Want(True), "Want.bytes=True"), (lambda: Want(which=None), "Want.which=None"),
    (lambda: AgentSpec("a", "plan", "m:f"), "AgentSpec.plan="), (lambda: AgentSpec("a", EnvPlan("k"), print), "AgentSpec.target="),
    (lambda: AgentSpec("a", EnvPlan("k"), "m:f", shares_gpu="no"), "AgentSpec.shares_gpu='no'"),
])
def test_other_values_refuse_another_type_by_its_field(make, told):
    with pytest.raises(PlanError, match=told):
        make()


@pytest.mark.parametrize("fields", [{"node_id": 3}, {"node_id": None}, {"prompt_id": b"p"}, {"class_type": int}], ids=str)
def test_a_node_is_told_by_texts(fields):
    with pytest.raises(PlanError, match=rf"^NodeContext\({next(iter(fields))}=.*a text is wanted"):
        NodeContext(**fields)


@pytest.mark.parametrize("options", [{"silence": -3}, {"wait": -1}, {"wait": "soon"}, {"silence": True}, {"wait": float("nan")}])
def test_a_call_option_that_is_no_time_is_refused(options):
    with pytest.raises(PlanError, match="seconds"):
        CallOptions(**options)


@pytest.mark.parametrize(("options", "told"), [
    ({"node": {"node_id": "3"}}, "node="), ({"node": "3"}, "node="), ({"on_progress": "print"}, "on_progress="),
    ({"callbacks": [print]}, "callbacks="), ({"callbacks": {"f": "print"}}, "callbacks="), ({"callbacks": {3: print}}, "callbacks="),
    ({"callbacks": None}, "callbacks="),
])
def test_a_call_option_of_another_type_is_refused_by_its_field_when_it_is_made(options, told):
    with pytest.raises(PlanError, match=told):
        CallOptions(**options)


def test_call_options_of_the_right_types_are_taken():
    CallOptions(silence=1, wait=0.5, on_progress=print, node=NodeContext("3"), callbacks={"f": print})


BAD_KEYS = ["", ".", "..", "a/b", "a\\b", "a\nb", "a\0b", "a\x1b[31mred", "a\tb", "a\x7f", "a\u202eb", "a\u2028b", "a\ud800", 3, None]


@pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
def test_a_key_that_cannot_stand_in_a_path_or_on_a_terminal_is_refused(key):
    with pytest.raises(PlanError, match="cannot be an environment's key") as caught:
        EnvPlan(key=key)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("key", ["a", "pack-1.2_x", "two words", "Ünïcode", "a:b"])
def test_a_key_of_printable_characters_is_taken(key):
    assert EnvPlan(key=key).key == key


@pytest.mark.parametrize("settings", [{"birth": -1}, {"birth": 0.01}, {"crash_limit": 0}, {"tick": float("nan")}])
def test_a_setting_out_of_its_range_is_refused_also_from_python(settings):
    with pytest.raises(PlanError, match="out of range"):
        WorkerPool(Settings(**settings))


@pytest.mark.parametrize(("settings", "told"), [
    ({"runtime_folder": 3}, "the path of a folder"), ({"envs_folder": ""}, "the path of a folder"),
    ({"log_folder": b"/logs"}, "the path of a folder"), ({"runtime_folder": "~no-such-user/x"}, "cannot be used"),
    ({"tick": "often"}, "a number"), ({"birth": None}, "a number"), ({"birth": True}, "a number"), ({"max_calls": True}, "a number"),
    ({"crash_limit": "3"}, "a number"), ({"crash_limit": 2.5}, "a whole number"), ({"zygote": "2"}, "a number"),
    ({"uv": None}, "a text"), ({"uv": 3}, "a text"), ({"cuda_wheels_index": Path("wheels")}, "a text"),
])
def test_a_setting_of_another_type_is_refused_by_its_name_when_it_is_made(settings, told):
    with pytest.raises(PlanError, match=f"^{next(iter(settings))}=.*{told}"):
        Settings(**settings)


def test_a_folder_setting_may_be_a_text_or_a_path_and_is_a_path_from_then_on(tmp_path, monkeypatch):
    class Place:
        def __fspath__(self):
            return str(tmp_path)

    monkeypatch.setenv("HOME", "/home/of-somebody")
    found = Settings(runtime_folder=str(tmp_path), envs_folder=Place(), log_folder="~/logs", uv=Path("/opt/uv"))
    assert (found.runtime_folder, found.envs_folder, found.log_folder) == (tmp_path, tmp_path, Path("/home/of-somebody/logs"))
    assert found.uv == str(Path("/opt/uv"))
    with WorkerPool(Settings(runtime_folder=str(tmp_path / "run"), zygote=False)) as pool:
        assert pool.call(EnvPlan.existing(sys.executable, "here"), "builtins:len", [1, 2]) == 2
    assert pool.settings.zygote == 0


def test_a_folder_of_a_user_who_is_not_there_is_refused_by_its_variable():
    with pytest.raises(PlanError, match="COMFY_ENV_RUNTIME=.~no-such-user"):
        Settings.read({"COMFY_ENV_RUNTIME": "~no-such-user/x"})


def test_the_service_refuses_a_setting_of_another_type_too(tmp_path):
    assert OrchestratorSettings(state_dir=str(tmp_path), autorestart=False) == OrchestratorSettings(state_dir=tmp_path, autorestart=0)
    with pytest.raises(PlanError, match="port='8199' is not a number"):
        OrchestratorSettings(port="8199")


def test_what_is_no_plan_and_what_are_no_options_is_named():
    with WorkerPool() as pool:
        with pytest.raises(PlanError, match="a plan is wanted"):
            pool.call("old", "os:getpid")
        with pytest.raises(PlanError, match="must be CallOptions"):
            pool.call(EnvPlan(key="none"), "os:getpid", options={"wait": 1})
        with pytest.raises(PlanError, match="must be Want"):
            pool.release("none", 1_000_000)  # type: ignore[arg-type]


@pytest.mark.parametrize("verb", ["inspect", "plan", "build", "remove"])
@pytest.mark.parametrize("given", ["old", 3, None])
def test_a_verb_that_needs_a_plan_says_so_where_it_is_given_something_else(verb, given):
    with WorkerPool() as pool, pytest.raises(PlanError, match=f"is wanted, not {type(given).__name__} {given!r}"):
        getattr(pool, verb)(given)


@pytest.mark.parametrize("verb", ["record", "story", "interrupt", "release", "kill", "sources_changed"])
@pytest.mark.parametrize("given", [3, None, b"old"])
def test_a_verb_that_takes_a_plan_or_a_key_says_so_where_it_is_given_neither(verb, given):
    with WorkerPool() as pool, pytest.raises(PlanError, match="a plan or an environment's key is wanted"):
        getattr(pool, verb)(given)
