"""The sample nodes do honest image work, on arrays and tensors alike."""

from __future__ import annotations

import ast
import sys

import pytest

from .conftest import EXAMPLES

np = pytest.importorskip("numpy")


@pytest.fixture
def run(classes):
    """`run("ModernUnsharp", image=…)` runs a fresh node with its defaults and returns its result."""

    def call(name, /, **given):
        kind = classes[name]
        declared = {**kind.INPUT_TYPES().get("required", {}), **kind.INPUT_TYPES().get("optional", {})}
        defaults = {key: spec[1]["default"] for key, spec in declared.items() if len(spec) > 1 and "default" in spec[1]}
        answer = getattr(kind(), kind.FUNCTION)(**{**defaults, **given})
        return answer["result"] if isinstance(answer, dict) else answer

    return call


@pytest.fixture
def image():
    """A ramp with a bright square and some noise: [1, 48, 64, 3]."""
    pixels = np.linspace(0.2, 0.6, 64)[None, None, :, None] * np.ones((1, 48, 1, 3))
    pixels[:, 12:36, 20:44] = (0.9, 0.7, 0.5)
    return (pixels + np.random.default_rng(1).normal(0, 0.02, pixels.shape)).clip(0, 1).astype(np.float32)


IMAGE_NODES = ["ClassicLocalContrast", "ClassicToneCurve", "ClassicSmooth", "ModernDiffusion", "ModernUnsharp"]


@pytest.mark.parametrize("name", IMAGE_NODES)
def test_an_image_comes_back_in_its_shape_and_range_and_changed(run, image, name):
    before = image.copy()
    (result,) = run(name, image=image)
    assert (result.shape, result.dtype) == (image.shape, np.float32)
    assert 0 <= result.min() and result.max() <= 1
    assert np.abs(result - image).max() > 0.01
    assert np.array_equal(image, before)


@pytest.mark.parametrize("name", IMAGE_NODES)
def test_a_tensor_gives_a_tensor_with_the_same_values(run, image, name):
    torch = pytest.importorskip("torch")
    (result,) = run(name, image=torch.from_numpy(image))
    assert isinstance(result, torch.Tensor)
    assert np.allclose(result.numpy(), run(name, image=image)[0])


def test_packs_import_neither_torch_nor_comfy_env():
    for path in [*EXAMPLES.glob("pack_*/*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
        assert not {name.split(".")[0] for name in names} & {"torch", "comfy_env"}, path


@pytest.mark.parametrize(("name", "more"), [("ClassicSmooth", {"radius": 3}), ("ModernDiffusion", {})])
def test_smoothing_removes_noise_and_keeps_the_edge(run, image, name, more):
    (result,) = run(name, image=image, **more)
    assert (result[0, 19:29, 27:37].std((0, 1)) < 0.6 * image[0, 19:29, 27:37].std((0, 1))).all()
    assert result[0, 20:28, 22:26].mean() - result[0, 20:28, 14:18].mean() > 0.25


def test_unsharp_steepens_an_edge(run, image):
    (result,) = run("ModernUnsharp", image=image, amount=1.5)
    assert np.abs(np.diff(result, axis=2)).max() > np.abs(np.diff(image, axis=2)).max()


def test_local_contrast_widens_dark_tones_and_keeps_hues(run, image):
    dull = image * 0.2 + 0.1
    (result,) = run("ClassicLocalContrast", image=dull, tiles=2, clip=16.0, strength=1.0)
    assert result.std() > 1.5 * dull.std()
    shares = dull / dull.sum(-1, keepdims=True)
    assert np.allclose((result / result.sum(-1, keepdims=True))[result.max(-1) < 1], shares[result.max(-1) < 1], atol=1e-3)


def test_colour_transfer_moves_the_colours_and_keeps_the_light(run, image, classes):
    (palette,) = run("ClassicPalette", colours="#0000ff, #4444ff")
    (result,) = run("ClassicColourTransfer", image=image, palette=palette, strength=1.0)
    assert result[..., 2].mean() > result[..., 0].mean()
    tones = sys.modules[classes["ClassicColourTransfer"].__module__.rpartition(".")[0] + ".tones"]
    assert np.allclose(tones.oklab(image)[..., 0], tones.oklab(tones.from_oklab(tones.oklab(image)))[..., 0], atol=1e-4)


def test_a_tone_curve_goes_through_its_points_and_never_turns(run):
    ramp = np.repeat(np.linspace(0, 1, 256, dtype=np.float32)[None, None, :, None], 3, -1)
    (result,) = run("ClassicToneCurve", image=ramp, points="0:0, 0.2:0.6, 0.4:0.62, 1:1")
    assert np.interp(0.2, ramp[0, 0, :, 0], result[0, 0, :, 0]) == pytest.approx(0.6, abs=0.01)
    assert np.diff(result[0, 0, :, 0]).min() >= 0


@pytest.mark.parametrize(("points", "fine"), [("0:0, 1:1", True), ("0:0", False), ("1:0, 0:1", False), ("a:b, 1:1", False)])
def test_a_tone_curve_validates_its_points(classes, points, fine):
    assert (classes["ClassicToneCurve"].VALIDATE_INPUTS(points) is True) is fine


def test_a_bracket_gives_one_frame_per_stop_and_fusion_uses_the_best_of_each(run):
    scene = np.concatenate([np.full((1, 32, 32, 3), 0.02), np.full((1, 32, 32, 3), 0.99)], axis=2).astype(np.float32)
    scene[0, ::4, :, :] *= 0.8
    (frames,) = run("ClassicBracket", image=scene, stops="-2, 0, 2")
    assert [frame.shape for frame in frames] == [scene.shape] * 3
    (fused,) = run("ModernFusion", images=frames)
    assert fused[0, :, :24].mean() > scene[0, :, :24].mean()
    assert fused[0, :, 40:].mean() < scene[0, :, 40:].mean()


def test_ink_is_drawn_at_edges_only(run, image):
    (lines,) = run("ModernInk", image=np.round(image, 1), darkness=0.2)
    assert lines.shape == image.shape[:3]
    assert lines[0, 12:36, 18:22].max() > 0.3
    assert lines[0, 18:30, 28:36].max() < 0.05


def test_a_composite_takes_each_side_where_its_mask_says(run, image):
    (mask,) = run("ModernSpot", image=image, radius=0.2, softness=0.1)
    (result,) = run("ModernComposite", background=image * 0, foreground=image * 0 + 1, mask=mask)
    assert result[0, 24, 32].tolist() == [1, 1, 1] and result[0, 0, 0].tolist() == [0, 0, 0]


def test_the_meter_counts_over_all_its_calls(classes, image):
    meter = classes["ModernMeter"]()
    assert meter.measure(image * 0)[1] == "frame 1: 0.000, average 0.000"
    assert meter.measure(image * 0 + 1)[1] == "frame 2: 1.000, average 0.500"
    assert classes["ModernMeter"]().measure(image)[1].startswith("frame 1:")


def test_a_saved_picture_is_read_back_and_never_overwritten(run, image, tmp_path):
    paths = [run("ModernSave", image=image, folder=str(tmp_path), name="p")[0] for _ in range(2)]
    assert [path.rpartition("/")[2] for path in paths] == ["p_00001.png", "p_00002.png"]
    (read,) = run("ClassicLoadPhoto", path=paths[0], longest=512)
    assert np.abs(np.asarray(read) - image).max() <= 0.5 / 255 + 1e-6


def test_a_large_photo_is_made_smaller(run, image, tmp_path):
    (path,) = run("ModernSave", image=image, folder=str(tmp_path))
    (read,) = run("ClassicLoadPhoto", path=path, longest=32)
    assert read.shape == (1, 24, 32, 3)


def test_a_sheet_holds_every_panel(run, image):
    (sheet,) = run("ModernSheet", first=image, second=image * 0, third=image * 0 + 1, captions="a\nb\nc", footer="x")
    assert sheet.shape[1] > 2 * 48 and sheet.shape[2] > 2 * 64
    assert np.abs(np.asarray(sheet)[0, 14:62, 14:78] - image[0]).max() <= 0.5 / 255 + 1e-6
