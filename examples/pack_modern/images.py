"""ComfyUI's images as arrays: float32 [batch, height, width, channels] from 0 to 1.

A node takes whatever `numpy.asarray` takes and gives back what it was given: a tensor for a tensor, else an array. torch
is never imported here.
"""

import sys

import numpy as np


def array(image):
    """Return an image or mask as a float32 array."""
    if hasattr(image, "detach"):
        image = image.detach().cpu()
    return np.asarray(image, dtype=np.float32)


def like(result, given=None):
    """Return the array as what `given` was; without one, as what this process works with: a tensor where torch is loaded."""
    torch = sys.modules.get("torch")
    result = np.ascontiguousarray(result, dtype=np.float32)
    if torch is not None and (given is None or isinstance(given, torch.Tensor)):
        return torch.from_numpy(result)
    return result


def luma(pixels):
    """Return the brightness [batch, height, width] of colour pixels."""
    return pixels[..., :3] @ np.array([0.2126, 0.7152, 0.0722], np.float32)


def stamp(*modules):
    """Return which Python and which libraries this process runs, as text."""
    versions = ["{} {}".format(m.__name__.replace("PIL", "Pillow"), m.__version__) for m in modules]
    return ", ".join(["Python {}.{}.{}".format(*sys.version_info[:3]), *versions])
