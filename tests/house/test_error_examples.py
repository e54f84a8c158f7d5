"""Each error of the tree has one real example on the errors page, and each says what a reader needs next."""

from __future__ import annotations

import importlib.util
import inspect
import sys

import pytest

from comfy_env import errors

from .tree import ROOT

UNRAISED = {errors.ComfyEnvError}
"""The root of the tree is never raised itself."""

SELF_EXPLAINING = {errors.NodeRaised, errors.Interrupted, errors.LaneLost, errors.FrameDamaged, errors.DecodeRefused, errors.BackendError}
"""What was raised, wanted, or is told to whoever wrote the other end needs no next step."""


@pytest.fixture(scope="module")
def told():
    name = "comfy_env_error_examples"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "error_examples.py")
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name].told()


def kinds():
    return {kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, errors.ComfyEnvError)}


@pytest.mark.slow
def test_every_error_is_provoked_for_real_once(told):
    assert kinds() - UNRAISED == set(told)


@pytest.mark.slow
def test_every_message_is_told_in_its_parts(told):
    for kind, (scene, text) in told.items():
        headline, *more = text.splitlines()
        assert scene.endswith(".") and headline, kind
        assert "None" not in headline.replace("returned None", ""), headline
        if kind not in SELF_EXPLAINING:
            assert any(line.startswith("next: ") for line in more), f"{kind.__name__} does not say what to do next:\n{text}"


@pytest.mark.slow
def test_no_message_tells_a_place_or_number_of_this_machine(told):
    for _, text in told.values():
        assert str(ROOT) not in text and sys.prefix not in text and "/tmp" not in text, text
