"""The sending half of the codec: every type is decided here, by its row, or it does not leave."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from . import blocks
from .devices import Ticket
from .faults import EncodeFault
from .sealed import Marker

Row = Callable[[Any], Any]
"""Takes an object and returns (marker, arguments[, state, items, pairs, FILL]); an EncodeFault refuses it."""


class _Sink:
    """What a pickler writes to: a list of pieces."""

    def __init__(self) -> None:
        self.pieces: list[Any] = []
        self.write = self.pieces.append


class Encoder(pickle.Pickler):
    """A pickler that asks a table of rows about every type pickle does not write natively, and never pickle itself."""

    def __init__(self, rows: dict[type, Row], learn: Callable[[Any], Row]) -> None:
        self._sink = _Sink()
        self._buffers: list[memoryview] = []
        self._rows = rows
        self._learn = learn
        super().__init__(self._sink, 5, buffer_callback=self._place)

    def encode(self, value: Any) -> tuple[bytes, list[memoryview]]:
        """Return payload and buffers. After an exception this object must not be used again."""
        try:
            self.dump(value)
        except RecursionError as error:
            raise EncodeFault(value, "is nested too deeply or contains itself in a way that cannot be written") from error
        pieces = self._sink.pieces
        payload = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        buffers, self._buffers = self._buffers, []
        self.clear_memo()
        return payload, buffers

    def forget(self) -> None:
        """Let go of a value that was not written to its end; a pickler and its callback hold each other."""
        self.clear_memo()
        self._sink.pieces.clear()
        self._buffers = []

    def reducer_override(self, obj: Any) -> Any:
        row = self._rows.get(type(obj))
        if row is None:
            row = self._learn(obj)
        return row(obj)

    def _place(self, buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if type(view.obj) is Ticket:
            if len(self._buffers) >= blocks.MOST:
                raise EncodeFault(None, f"has more than {blocks.MOST} buffers, of which some lie on a device", "send less at once")
        elif blocks.rides_in_frame(view.nbytes, len(self._buffers)):
            return True
        self._buffers.append(view)
        return False


def write_marker(marker: Marker) -> str:
    """The row of markers: written as a name of the module `sealed`."""
    return marker.name
