"""What a caller may hand over, and what is refused before anything is done with it."""

import pytest

from comfy_env import CallOptions, EnvPlan, Settings, WorkerPool
from comfy_env.errors import PlanError


@pytest.mark.parametrize("field", ["dependencies", "indexes", "secrets", "nodes", "import_roots"])
def test_one_text_where_several_are_wanted_is_refused_and_not_taken_letter_by_letter(field):
    with pytest.raises(PlanError, match="must be several entries"):
        EnvPlan(key="text", **{field: "six"})


@pytest.mark.parametrize("options", [{"silence": -3}, {"wait": -1}, {"wait": "soon"}])
def test_a_call_option_that_is_no_time_is_refused(options):
    with pytest.raises(PlanError, match="seconds"):
        CallOptions(**options)


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
