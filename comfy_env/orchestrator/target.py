"""What a restart aims at. Pure values."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    TREE = "tree"                # the sources on disk are not those that run
    VERSION = "version"          # a newer version can be installed
    ASKED = "asked"              # somebody wants a restart


@dataclass(frozen=True)
class Target:
    """``id`` is a fingerprint or version; one id is tried once. ``label`` is what people are told."""

    kind: Kind
    id: str
    label: str

    @property
    def changes_disk(self) -> bool:
        return self.kind is Kind.VERSION
