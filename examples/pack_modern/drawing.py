"""Picture to drawing: diffusion, ink lines, masks, blending."""

import numpy as np

from .images import luma


def blurred(values, sigma):
    """Return the array blurred along axes 1 and 2 by a Gaussian of `sigma` pixels; borders repeat."""
    radius = max(1, int(np.ceil(3 * sigma)))
    taps = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    taps = (taps / taps.sum()).astype(np.float32)
    for axis in (1, 2):
        padding = [(radius, radius) if a == axis else (0, 0) for a in range(values.ndim)]
        padded = np.pad(values, padding, mode="edge")
        size = values.shape[axis]
        values = sum(tap * np.take(padded, range(at, at + size), axis) for at, tap in enumerate(taps))
    return values


def diffused(pixels, iterations, edge, advance):
    """Let colours flow until they meet an edge steeper than `edge` (Perona and Malik); `advance(n)` hears each round."""
    pixels = pixels.astype(np.float32, copy=True)
    for done in range(iterations):
        change = np.zeros_like(pixels)
        for axis in (1, 2):
            step = np.diff(pixels, axis=axis)
            steep = np.sqrt(np.vecdot(step, step) / step.shape[-1])[..., None]
            flow = step * np.exp(-((steep / edge) ** 2))
            here, there = [slice(None)] * 4, [slice(None)] * 4
            here[axis], there[axis] = slice(None, -1), slice(1, None)
            change[tuple(here)] += flow
            change[tuple(there)] -= flow
        pixels += 0.2 * change
        advance(done + 1)
    return pixels


def ink(pixels, width, darkness, sharpness):
    """Return where a pen would draw, 0..1 per pixel (extended difference of Gaussians)."""
    bright = luma(pixels)
    fine, coarse = blurred(bright, width), blurred(bright, 1.6 * width)
    edge = fine + 16 * (fine - coarse)
    paper = np.where(edge >= darkness, 1.0, 1.0 + np.tanh(sharpness * (edge - darkness)))
    return np.clip(1 - paper, 0, 1)


def spot(shape, across, down, radius, softness):
    """Return one mask [1, height, width]: 1 in an ellipse, 0 outside, soft between; places are shares of the size."""
    height, width = shape
    y, x = np.mgrid[0:height, 0:width]
    far = np.hypot((x / width - across), (y / height - down) * height / width) / radius
    ramp = np.clip((1 + softness - far) / (2 * softness), 0, 1)
    return (ramp * ramp * (3 - 2 * ramp))[None]


def over(background, foreground, mask):
    """Return the foreground where the mask is 1, the background where it is 0."""
    return background + (foreground - background) * mask[..., None]


def unsharp(pixels, radius, amount, threshold):
    """Raise the contrast of details finer than `radius`; differences below `threshold` stay, so that noise does."""
    detail = pixels - blurred(pixels, radius)
    kept = np.sign(detail) * np.maximum(np.abs(detail) - threshold, 0)
    return np.clip(pixels + amount * kept, 0, 1)
