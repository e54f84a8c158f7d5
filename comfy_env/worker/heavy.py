"""Which heavy modules a worker has imported: those that a zygote may import in advance for its environment's workers."""

from __future__ import annotations

import sys

MODULES = (
    "numpy", "numpy.random", "numpy.linalg",
    "scipy", "scipy.linalg", "scipy.special", "scipy.sparse", "scipy.ndimage", "scipy.signal", "scipy.optimize", "scipy.spatial",
    "scipy.interpolate", "scipy.stats",
    "PIL", "PIL.Image", "PIL.ImageOps", "cv2", "pandas", "skimage", "matplotlib",
    "torch", "torchvision", "torchaudio", "safetensors", "safetensors.torch", "einops", "trimesh",
)
"""In the order they are imported. Nothing of a pack, nothing of ComfyUI, nothing that looks for a device while it is imported."""


class Seen:
    """What was imported and not told yet; asked after every call, so it looks only when modules came or went."""

    def __init__(self) -> None:
        self._count = 0
        self._told: set[str] = set()

    def news(self) -> list[str]:
        """Return the heavy modules imported since the last time."""
        count = len(sys.modules)
        if count == self._count:
            return []
        self._count = count
        found = [name for name in MODULES if name in sys.modules and name not in self._told]
        self._told.update(found)
        return found
