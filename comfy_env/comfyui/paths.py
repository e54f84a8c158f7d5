"""The state of this ComfyUI that every worker mirrors: where it is, its folders, the flags that change how nodes compute."""

from __future__ import annotations

import enum
import itertools
import secrets
import threading
from pathlib import Path
from typing import Any

from comfy_env.comfyui import core

FLAGS = frozenset({
    "cpu", "directml", "oneapi_device_selector", "default_device", "supports_fp8_compute", "gpu_only", "highvram", "normalvram", "lowvram",
    "novram", "reserve_vram", "async_offload", "disable_async_offload", "disable_pinned_memory", "force_non_blocking",
    "disable_smart_memory", "disable_dynamic_vram", "enable_dynamic_vram", "force_fp32", "force_fp16", "fp32_unet", "fp64_unet",
    "bf16_unet", "fp16_unet", "fp8_e4m3fn_unet", "fp8_e5m2_unet", "fp8_e8m0fnu_unet", "fp16_vae", "fp32_vae", "bf16_vae", "cpu_vae",
    "fp8_e4m3fn_text_enc", "fp8_e5m2_text_enc", "fp16_text_enc", "fp32_text_enc", "bf16_text_enc", "force_channels_last",
    "disable_ipex_optimize", "use_split_cross_attention", "use_quad_cross_attention", "use_pytorch_cross_attention",
    "use_sage_attention", "use_flash_attention", "disable_xformers", "force_upcast_attention", "dont_upcast_attention", "deterministic",
    "fast", "mmap_torch_files", "disable_mmap", "preview_method", "preview_size", "cache_classic", "cache_lru", "cache_none", "cache_ram",
    "default_hashing_function", "disable_metadata", "verbose", "high_ram", "vram_headroom", "disable_nvml_pressure", "fast_disk",
    "disable_fast_disk", "use_ck_attention", "disable_cuda_graphs", "disable_comfy_compiler",
})
"""Flags of ComfyUI that a worker takes over: device, memory, precision, attention, cache, previews (0.3.64 to 0.38.1). Never
ports or paths."""

PLACES = ("base_path", "models_dir", "output_directory", "temp_directory", "input_directory", "user_directory")


class HostState:
    """Hands out the state and a version that changes whenever the folders do. Cheap enough to be asked at every call."""

    def __init__(self, pycache: Path | None = None) -> None:
        self._pycache = pycache
        self._name = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._seen: Any = None
        self._version = f"{self._name}:0"

    def version(self) -> str:
        """Return the version of the state as it is now."""
        module = core.loaded("folder_paths")
        if module is None:
            return self._version
        seen = (
            [tuple(entry[0]) for entry in module.folder_names_and_paths.values()],
            [getattr(module, name, None) for name in PLACES],
            list(module.folder_names_and_paths),
        )
        if seen != self._seen:
            with self._lock:
                self._seen = seen
                self._version = f"{self._name}:{next(self._numbers)}"
        return self._version

    def document(self) -> dict[str, Any]:
        """Return the state in plain values."""
        root = core.root()
        return {
            "root": None if root is None else str(root),
            "flags": flags(),
            "folders": folders(),
            "pycache": None if self._pycache is None else str(self._pycache),
            "max_resolution": getattr(core.loaded("nodes"), "MAX_RESOLUTION", 16384),
        }


def flags() -> dict[str, Any]:
    """Return the values of the flags that workers take over, enums by name."""
    args = getattr(core.loaded("comfy.cli_args"), "args", None)
    given = {name: value for name, value in vars(args).items() if name in FLAGS} if args is not None else {}
    if not isinstance(given.get("verbose"), str):   # since 0.38 a list that may name log files, which are the host's
        given.pop("verbose", None)
    return {name: _plain(value) for name, value in given.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return {"enum": type(value).__name__, "name": value.name}
    if isinstance(value, (set, frozenset)):
        return {"set": [_plain(one) for one in value]}
    return value


def folders() -> dict[str, Any] | None:
    """Return what `folder_paths` knows, None without a ComfyUI."""
    module = core.loaded("folder_paths")
    if module is None:
        return None
    names = {
        name: ([str(path) for path in paths], [str(kind) for kind in kinds], isinstance(kinds, (set, frozenset)))
        for name, (paths, kinds) in module.folder_names_and_paths.items()
    }
    return {"names": names, "places": {name: str(getattr(module, name)) for name in PLACES if hasattr(module, name)}}


def file_names(folder: str) -> list[str]:
    """Return the files of one of ComfyUI's folders as a menu of this ComfyUI shows them; empty for a folder it lacks."""
    module = core.loaded("folder_paths")
    if module is None or folder not in module.folder_names_and_paths:
        return []
    return list(module.get_filename_list(folder))
