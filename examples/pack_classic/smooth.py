"""Smoothing that keeps edges."""

import numpy as np

from .images import luma


def box(values, radius):
    """Return the mean over a square window; at the border over the part of it that exists."""
    for axis in (1, 2):
        size = values.shape[axis]
        sums = np.concatenate([np.zeros_like(values.take([0], axis), dtype=np.float64), np.cumsum(values, axis, dtype=np.float64)], axis)
        low = np.maximum(np.arange(size) - radius, 0)
        high = np.minimum(np.arange(size) + radius + 1, size)
        shape = [1] * values.ndim
        shape[axis] = size
        values = (sums.take(high, axis) - sums.take(low, axis)) / (high - low).reshape(shape)
    return values


def guided(pixels, radius, softness):
    """Smooth each channel where brightness varies by less than about `softness`, and follow brightness elsewhere."""
    guide = luma(pixels)[..., None]
    mean, mean_guide = box(pixels, radius), box(guide, radius)
    shared = box(pixels * guide, radius) - mean * mean_guide
    spread = box(guide * guide, radius) - mean_guide**2
    gain = shared / (spread + softness**2)
    return np.clip(box(gain, radius) * guide + box(mean - gain * mean_guide, radius), 0, 1)
