"""Tone and colour: local contrast, curves, exposure, palettes."""

import numpy as np

from .images import luma

BINS = 256
_TO_LMS = np.array([[0.4122214708, 0.5363325363, 0.0514459929],
                    [0.2119034982, 0.6806995451, 0.1073969566],
                    [0.0883024619, 0.2817188376, 0.6299787005]])
_TO_LAB = np.array([[0.2104542553, 0.7936177850, -0.0040720468],
                    [1.9779984951, -2.4285922050, 0.4505937099],
                    [0.0259040371, 0.7827717662, -0.8086757660]])


def linear(pixels):
    """Return linear light for sRGB values."""
    return np.where(pixels <= 0.04045, pixels / 12.92, ((np.maximum(pixels, 0) + 0.055) / 1.055) ** 2.4)


def encoded(light):
    """Return sRGB values for linear light, clipped to 0..1."""
    light = np.clip(light, 0, 1)
    return np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)


def exposed(pixels, stops):
    """Return the pixels as if exposed `stops` longer."""
    return encoded(linear(pixels) * 2.0 ** stops)


def oklab(pixels):
    """Return the pixels in the Oklab colour space."""
    return np.cbrt(linear(pixels[..., :3]) @ _TO_LMS.T) @ _TO_LAB.T


def from_oklab(lab):
    """Return the sRGB pixels of Oklab colours, clipped to 0..1."""
    return encoded((lab @ np.linalg.inv(_TO_LAB).T) ** 3 @ np.linalg.inv(_TO_LMS).T)


def recoloured(pixels, palette, strength):
    """Move the mean and spread of the pixels' two colour axes towards the palette's; lightness stays."""
    lab, target = oklab(pixels), oklab(palette)
    axes = tuple(range(lab.ndim - 1))
    mean, spread = lab.mean(axes), lab.std(axes) + 1e-6
    moved = (lab - mean) * (target.std(axes) / spread) + target.mean(axes)
    moved[..., 0] = lab[..., 0]
    return from_oklab(lab + (moved - lab) * strength)


def gradient(colours, height, width):
    """Return one image [1, height, width, 3] that runs through the colours, left to right."""
    places = np.linspace(0, 1, len(colours))
    across = np.linspace(0, 1, width)
    row = np.stack([np.interp(across, places, colours[:, channel]) for channel in range(3)], axis=-1)
    return np.broadcast_to(row, (1, height, width, 3))


def curve(points, values):
    """Return `values` on the smooth monotone curve through (x, y) points (Fritsch and Carlson's slopes)."""
    x, y = np.asarray(points, dtype=float).T
    step, rise = np.diff(x), np.diff(y) / np.diff(x)
    slope = np.concatenate([rise[:1], (rise[:-1] + rise[1:]) / 2 * (rise[:-1] * rise[1:] > 0), rise[-1:]])
    limit = 3 * np.minimum(np.concatenate([rise[:1], rise]), np.concatenate([rise, rise[-1:]]))
    slope = np.minimum(slope, np.maximum(limit, 0))
    place = np.clip(np.searchsorted(x, values, side="right") - 1, 0, len(step) - 1)
    h, t = step[place], (values - x[place]) / step[place]
    bent = (1 - t) * y[place] + t * y[place + 1]
    return bent + t * (1 - t) * ((1 - t) * (slope[place] - rise[place]) - t * (slope[place + 1] - rise[place])) * h


def local_contrast(pixels, tiles, clip, strength):
    """Equalise brightness tile by tile with a limit on contrast, and keep the colours (CLAHE on brightness)."""
    bright = luma(pixels)
    even = np.stack([_equalised(one, tiles, clip) for one in bright])
    wanted = bright + (even - bright) * strength
    return np.clip(pixels * (wanted / np.maximum(bright, 1e-3))[..., None], 0, 1)


def _equalised(bright, tiles, clip):
    levels = np.clip((bright * (BINS - 1)).round().astype(int), 0, BINS - 1)
    rows, columns = _places(levels.shape[0], tiles), _places(levels.shape[1], tiles)
    maps = _tile_maps(levels, tiles, clip)
    (y0, y1, fy), (x0, x1, fx) = rows, columns
    fy, fx = fy[:, None], fx[None, :]
    top = maps[y0[:, None], x0[None, :], levels] * (1 - fx) + maps[y0[:, None], x1[None, :], levels] * fx
    low = maps[y1[:, None], x0[None, :], levels] * (1 - fx) + maps[y1[:, None], x1[None, :], levels] * fx
    return top * (1 - fy) + low * fy


def _places(size, tiles):
    """Return for each pixel of one axis its two nearest tiles and the weight of the second."""
    place = np.clip((np.arange(size) + 0.5) * tiles / size - 0.5, 0, tiles - 1)
    first = np.floor(place).astype(int)
    return first, np.minimum(first + 1, tiles - 1), place - first


def _tile_maps(levels, tiles, clip):
    """Return [tiles, tiles, levels]: the brightness each level becomes in each tile."""
    tile = (np.arange(levels.shape[0]) * tiles // levels.shape[0])[:, None] * tiles + np.arange(levels.shape[1]) * tiles // levels.shape[1]
    counts = np.bincount((tile * BINS + levels).ravel(), minlength=tiles * tiles * BINS).reshape(tiles, tiles, BINS).astype(float)
    total = counts.sum(-1, keepdims=True)
    limit = np.maximum(clip * total / BINS, 1)
    spare = np.maximum(counts - limit, 0).sum(-1, keepdims=True)
    return np.cumsum(np.minimum(counts, limit) + spare / BINS, axis=-1) / total
