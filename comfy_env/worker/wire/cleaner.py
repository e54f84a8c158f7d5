"""Makes privately mapped pages follow the shared memory again, where they were written to.

An untouched range costs one look and none of the page faults that throwing all its pages away would. The kernel marks
pages that are still the file's; a page without the mark is one's own copy.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import struct
from typing import Optional

_SCAN = 0xC0606610                  # PAGEMAP_SCAN: one pass in the kernel that ends at the first page found
_REQUEST = struct.Struct("<12Q")
_FILE, _PRESENT, _SWAPPED = 4, 8, 16
_IN_USE, _SWAPPED_MARK, _FILE_MARK = 0xC0, 0x40, 0x20   # the same in the last byte of a page's entry


class Cleaner:
    """Looks at this process's own page tables; where it cannot, every range counts as written to."""

    def __init__(self) -> None:
        self._tables: Optional[int] = None
        self._found = (ctypes.c_uint64 * 3)()
        self._scans = True

    def clean(self, memory: mmap.mmap, base: int, start: int, size: int) -> None:
        """Drop the pages of a range, which must be whole ones, if one of them was written to."""
        if self._is_dirty(base + start, size):
            memory.madvise(mmap.MADV_DONTNEED, start, size)

    def _is_dirty(self, where: int, size: int) -> bool:
        with contextlib.suppress(OSError):   # no such file or none of the two ways: nothing is known
            if self._tables is None:
                self._tables = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
            if self._scans:
                try:
                    return self._scan(self._tables, where, size)
                except OSError:   # an older kernel
                    self._scans = False
            return _read(self._tables, where, size)
        return True

    def _scan(self, tables: int, where: int, size: int) -> bool:
        kinds = _FILE | _PRESENT | _SWAPPED
        found = ctypes.addressof(self._found)
        request = _REQUEST.pack(_REQUEST.size, 0, where, where + size, 0, found, 1, 1, _FILE, _FILE, kinds ^ _FILE, kinds)
        return fcntl.ioctl(tables, _SCAN, bytearray(request)) != 0

    def close(self) -> None:
        tables, self._tables = self._tables, None
        if tables is not None:
            os.close(tables)


def _read(tables: int, where: int, size: int) -> bool:
    """Tell from every page's entry whether one was written to."""
    count = size // mmap.PAGESIZE
    entries = os.pread(tables, 8 * count, 8 * (where // mmap.PAGESIZE))
    marks = set(entries[7::8])
    return len(entries) != 8 * count or any(m & _IN_USE and (m & _SWAPPED_MARK or not m & _FILE_MARK) for m in marks)
