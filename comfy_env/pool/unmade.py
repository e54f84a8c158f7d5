"""What there is to say of an environment whose backend makes none: that nothing is built, and what nobody looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from comfy_env.values import Changes, EnvPlan, EnvState, EnvStatus

if TYPE_CHECKING:
    from comfy_env.hooks.relay import Relay

MAKES_NONE = "this backend makes no environments"


def inspected(relay: Relay, plan: EnvPlan, probe: bool) -> EnvState:
    """Return what the backend says of the plan's environment, or that it makes none."""
    state = relay.inspect(plan, probe)
    return EnvState(plan.key, EnvStatus.READY, plan.interpreter, reason=_reason(plan)) if state is None else state


def built(state: EnvState) -> EnvState:
    """Return the state that answers a build."""
    if state.status is EnvStatus.READY:
        return replace(state, reason=f"nothing to build: {state.reason or MAKES_NONE}")
    return replace(state, reason=f"nothing to build: {MAKES_NONE}, and {state.reason}")


def removed(state: EnvState) -> EnvState:
    """Return the state that answers a removal."""
    return replace(state, reason=f"nothing to remove: {MAKES_NONE}")


def changes(state: EnvState) -> Changes:
    """Return the state as the changes a build would make."""
    return Changes(state.key, python=dict(state.versions).get("python", ""), notes=(built(state).reason,))


def unlooked_at(plan: EnvPlan) -> str:
    """Name what a plan asks for and no hook of a backend without `comfy_env_inspect` ever looked at; '' for nothing."""
    conda = plan.conda.dependencies if plan.conda else ()
    asked = [f"Python {plan.python}"] if plan.python and plan.interpreter is None else []
    return ", ".join([*asked, *plan.dependencies, *conda])


def _reason(plan: EnvPlan) -> str:
    asked = unlooked_at(plan)
    return f"{MAKES_NONE}; whether there is {asked} was not looked at" if asked else MAKES_NONE
