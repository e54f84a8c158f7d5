"""Arrays become tensors again where ComfyUI's types promise tensors and the host works with torch.

A worker without torch answers with numpy arrays. Neither torch nor numpy is imported here: a host that has not loaded
them keeps what it was given.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

_WHOLE = frozenset({"IMAGE", "MASK", "SIGMAS"})
_PART = {"LATENT": "samples", "AUDIO": "waveform"}


def adopted(declared: Any, value: Any) -> Any:
    """Return the value of an output declared as `declared`, as a tensor if that is what hosts with torch expect."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is None or numpy is None or not isinstance(declared, str):
        return value
    if declared in _WHOLE:
        return _tensor(torch, numpy, value)
    part = _PART.get(declared)
    if part is not None and isinstance(value, Mapping) and part in value:
        return {**value, part: _tensor(torch, numpy, value[part])}
    return value


def _tensor(torch: Any, numpy: Any, value: Any) -> Any:
    if not isinstance(value, numpy.ndarray):
        return value
    fit = value if value.flags.writeable and value.flags.c_contiguous else value.copy(order="C")
    return torch.from_numpy(fit)
