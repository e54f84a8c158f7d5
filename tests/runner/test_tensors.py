"""Arrays of ComfyUI's tensor types become tensors in a host that works with torch, and stay arrays elsewhere."""

from __future__ import annotations

import sys

import pytest

from comfy_env.packs import nodes

np = pytest.importorskip("numpy")


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_a_host_without_torch_keeps_arrays(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    image = np.zeros((1, 2, 2, 3), np.float32)
    assert nodes.as_declared("IMAGE", image) is image


@pytest.mark.parametrize("declared", ["IMAGE", "MASK", "SIGMAS"])
def test_an_image_becomes_a_tensor_over_the_same_memory(torch, declared):
    image = np.zeros((1, 2, 2, 3), np.float32)
    tensor = nodes.as_declared(declared, image)
    tensor[0, 0, 0, 0] = 5
    assert isinstance(tensor, torch.Tensor) and image[0, 0, 0, 0] == 5


@pytest.mark.parametrize(("declared", "part"), [("LATENT", "samples"), ("AUDIO", "waveform")])
def test_the_array_inside_a_dict_becomes_a_tensor_and_the_rest_stays(torch, declared, part):
    given = {part: np.zeros(3), "sample_rate": 5, "other": np.ones(2)}
    adopted = nodes.as_declared(declared, given)
    assert isinstance(adopted[part], torch.Tensor)
    assert adopted["sample_rate"] == 5 and adopted["other"] is given["other"]
    assert isinstance(given[part], np.ndarray)


@pytest.mark.parametrize("declared", ["INT", "*", ["a", "b"]])
def test_other_types_stay_what_they_are(torch, declared):
    array = np.zeros(3)
    assert nodes.as_declared(declared, array) is array


def test_a_read_only_or_reversed_array_is_copied_first(torch):
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    assert nodes.as_declared("MASK", frozen).tolist() == [0, 0, 0]
    assert nodes.as_declared("MASK", np.arange(3.0)[::-1]).tolist() == [2, 1, 0]
