"""Exposure fusion: the best of several exposures, blended in Laplacian pyramids (Mertens, Kautz, Van Reeth)."""

import numpy as np

from .drawing import blurred
from .images import luma


def fused(frames):
    """Return one image from frames [batch, height, width, 3] of the same scene."""
    weights = np.stack([_worth(frame) for frame in frames])
    weights /= weights.sum(0)
    height, width = frames[0].shape[1:3]
    levels = max(1, int(np.log2(min(height, width))) - 2)
    blended = None
    for frame, weight in zip(frames, weights, strict=True):
        parts = [part * share for part, share in zip(_laplacian(frame, levels), _gaussian(weight[..., None], levels), strict=True)]
        blended = parts if blended is None else [old + new for old, new in zip(blended, parts, strict=True)]
    return np.clip(_collapsed(blended), 0, 1)


def _worth(frame):
    """Return how much each pixel deserves to be seen: detail, colour, and light that is neither black nor white."""
    bright = luma(frame)
    detail = np.abs(bright - blurred(bright, 1.0))
    colour = frame.std(-1)
    light = np.exp(-((frame - 0.5) ** 2) / (2 * 0.2**2)).prod(-1)
    return (detail + 0.01) * (colour + 0.05) * light + 1e-8


def _half(values):
    return blurred(values, 1.0)[:, ::2, ::2]


def _double(values, shape):
    grown = np.repeat(np.repeat(values, 2, axis=1), 2, axis=2)[:, : shape[1], : shape[2]]
    return blurred(grown, 1.0)


def _gaussian(values, levels):
    pyramid = [values]
    for _ in range(levels):
        pyramid.append(_half(pyramid[-1]))
    return pyramid


def _laplacian(values, levels):
    smaller = _gaussian(values, levels)
    return [fine - _double(coarse, fine.shape) for fine, coarse in zip(smaller, smaller[1:])] + [smaller[-1]]  # noqa: B905


def _collapsed(pyramid):
    values = pyramid[-1]
    for part in reversed(pyramid[:-1]):
        values = part + _double(values, part.shape)
    return values
