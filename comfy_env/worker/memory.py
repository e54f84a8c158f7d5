"""What a worker holds and gives back: device memory of torch, and what packs said they keep."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any, Optional


class Keepers:
    """Packs' own caches, each with a function that tells its bytes and one that frees them."""

    def __init__(self) -> None:
        self._keepers: list[tuple[Callable[[], int], Callable[[], Any]]] = []
        self._singles: list[Callable[[str, Optional[int]], Any]] = []

    def add(
        self, size: Callable[[], int], release: Callable[[], Any], single: Optional[Callable[[str, Optional[int]], Any]] = None
    ) -> None:
        """Take in a cache. ``single`` frees at most so many bytes of one thing in it, by the name it was told under."""
        self._keepers.append((size, release))
        if single is not None:
            self._singles.append(single)

    def held(self) -> int:
        """Return the bytes held now; cheap enough for every reply."""
        return sum(int(size()) for size, _ in self._keepers) + _device_bytes()

    def release(self, want: Optional[int], which: str = "") -> tuple[int, int]:
        """Free at least ``want`` bytes if that many are held (None: everything); return measured bytes freed and still held."""
        before = self.held()
        if which:
            for single in self._singles:
                single(which, want)
        else:
            self._release_enough(want, before)
        gc.collect()
        _empty_device_caches()
        held = self.held()
        return max(0, before - held), held

    def _release_enough(self, want: Optional[int], before: int) -> None:
        for _, release in list(self._keepers):
            if want is not None and before - self.held() >= want:
                break
            release()


def _cuda() -> Any:
    """Return torch.cuda if this process uses it; torch is never imported for the question."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def _device_bytes() -> int:
    cuda = _cuda()
    return sum(cuda.memory_reserved(i) for i in range(cuda.device_count())) if cuda else 0


def _empty_device_caches() -> None:
    cuda = _cuda()
    if cuda is not None:
        cuda.empty_cache()
