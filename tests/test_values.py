"""What a caller may hand over, and what is refused before anything is done with it."""

import pytest

from comfy_env import CallOptions, EnvPlan, NodeContext, Settings, WorkerPool
from comfy_env.errors import PlanError


@pytest.mark.parametrize("field", ["dependencies", "indexes", "secrets", "nodes", "import_roots"])
def test_one_text_where_several_are_wanted_is_refused_and_not_taken_letter_by_letter(field):
    with pytest.raises(PlanError, match="must be several entries"):
        EnvPlan(key="text", **{field: "six"})


@pytest.mark.parametrize("options", [{"silence": -3}, {"wait": -1}, {"wait": "soon"}])
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


@pytest.mark.parametrize("settings", [{"birth": -1}, {"birth": 0.01}, {"crash_limit": 0}, {"tick": "often"}])
def test_a_setting_out_of_its_range_is_refused_also_from_python(settings):
    with pytest.raises(PlanError, match="out of range"):
        WorkerPool(Settings(**settings))


def test_what_is_no_plan_and_what_are_no_options_is_named():
    with WorkerPool() as pool:
        with pytest.raises(PlanError, match="a plan is wanted"):
            pool.call("old", "os:getpid")
        with pytest.raises(PlanError, match="must be CallOptions"):
            pool.call(EnvPlan(key="none"), "os:getpid", options={"wait": 1})
