"""Lists of file names that remember which of ComfyUI's folders they came from, so that the host can list them itself."""

from __future__ import annotations

import functools
from typing import Any


class FileNames(list):
    """A list of the files in a named folder. ``parts``: the folder's name, and the lists a pack put before or after it."""

    def __init__(self, names: Any, parts: Any) -> None:
        super().__init__(names)
        self.parts = list(parts)

    def __add__(self, other: Any) -> Any:
        if type(other) is FileNames:
            return FileNames(list.__add__(self, other), [*self.parts, *other.parts])
        if type(other) is not list:
            return list.__add__(self, other)
        return FileNames(list.__add__(self, other), [*self.parts, other])

    def __radd__(self, other: Any) -> Any:
        if type(other) is not list:
            return NotImplemented
        return FileNames(other + list(self), [other, *self.parts])

    def __reduce__(self) -> Any:
        return list, (list(self),)

    def __getitem__(self, place: Any) -> Any:
        """A slice, or any other list made of this one, is a plain list."""
        return list.__getitem__(self, place)


def remember(folder_paths: Any) -> None:
    """Have `folder_paths.get_filename_list` return lists that know their folder."""
    original = folder_paths.get_filename_list

    @functools.wraps(original)
    def get_filename_list(folder_name: str) -> Any:
        return FileNames(original(folder_name), [folder_name])

    folder_paths.get_filename_list = get_filename_list
