"""The codec of one lane: which rows exist, what happens to everything else, and how names are looked up.

Each end gives a `Side`; the codec itself does not know which end it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from . import arrays, coded, named, paths, pictures, rows, sealed, tensors
from .decoder import Fresh, Names, read
from .devices import Devices
from .encoder import Encoder, Row
from .faults import DecodeFault, EncodeFault
from .inbox import Missing


class Side:
    """What one end decides about values; the methods are what the two ends do differently."""

    wary = False
    devices: Optional[Devices] = None
    """How memory of devices is dealt with on this side's lane, None where it has nothing to do with any."""

    def hold(self, obj: Any) -> int:
        """Keep an object whose class the other end may not know; return its number, 0 for not kept."""
        return 0

    def settle(self, sent: bool) -> None:
        """The message that was being encoded on this thread is whole, or was refused: then nothing it held counts."""

    def write_other(self, obj: Any) -> Any:
        """Return the reduction of an object without a row, or refuse it."""
        raise EncodeFault(obj, f"is of type {type_name(type(obj))}, which cannot cross")

    def find(self, module: str, qualname: str) -> Any:
        """Return the class of that name, None if it is not known here."""
        return None

    def absent(self, fresh: Fresh, kind: str, module: str, qualname: str, reference: int, content: Any) -> Any:
        """Return what stands for a value whose class is not known here, or refuse it."""
        raise DecodeFault(f"a value is of class {module}.{qualname}, which is not known here")

    def unread(self, name: str, tag: str, content: Any, why: str) -> Any:
        """Return what stands for an object that a pack's codec wrote and none reads here, or refuse it."""
        raise DecodeFault(f"an argument is a {name} ({tag}), which this environment cannot read: {why}")

    def references(self) -> Mapping[str, Callable[..., Any]]:
        """Return the reconstructors REF and VALUE, each taking a `Fresh` first."""
        return {}

    def adopt(self, fresh: Fresh) -> None:
        """Take over the references that a message brought, once it was read whole."""

    def load(self, module: str) -> Any:
        """Import "numpy", "torch" or "PIL.Image" because a value needs it; None where it is not installed."""
        return None


class Codec:
    """Encodes and decodes values for one lane; any thread may use it.

    ``lends``: tensors on devices are lent where that is agreed on, and Unproved is raised before that was tried.
    """

    def __init__(self, side: Side, lends: bool = False) -> None:
        self._side = side
        self._lends = lends
        self._plain: Optional[Codec] = None
        self._rows: dict[type, Row] = {**rows.ROWS, coded.SealedValue: coded.pass_on}
        self._spare: list[Encoder] = []
        self._names = _names(side)

    def encode(self, value: Any, message: bool = False) -> tuple[bytes, list[memoryview]]:
        """Return payload and out-of-band buffers; an EncodeFault names the path of what cannot cross.

        ``message``: the value is a message's dict, whose keys are where paths start (``args[0].fn``, ``value.opts``).
        """
        encoder = self._spare.pop() if self._spare else Encoder(self._rows, self._learn)
        try:
            encoded = encoder.encode(value)
        except BaseException as error:
            encoder.forget()
            self._side.settle(sent=False)
            if isinstance(error, EncodeFault):
                raise _with_path(error, value, message) from error.__cause__
            raise
        self._side.settle(sent=True)
        self._spare.append(encoder)
        return encoded

    @property
    def plain(self) -> Codec:
        """This codec for what is not worth a proof: tensors on devices travel as bytes."""
        if self._plain is None:
            self._plain = Codec(self._side)
        return self._plain

    def decode(self, payload: Any, buffers: Sequence[memoryview] = ()) -> Any:
        """Return the value of a message; raises DecodeFault, ReferenceGone."""
        for buffer in buffers:
            if type(buffer) is Missing:
                raise DecodeFault(buffer.why)
        value, fresh = read(self._names, payload, buffers)
        if fresh is not None and (fresh.adopted or fresh.spared):
            self._side.adopt(fresh)
        return value

    def _learn(self, obj: Any) -> Row:
        """Find the row of a type that was not met before, and remember it unless its class may go away again."""
        cls = type(obj)
        row = _row_by_name(cls)
        if row is None and (own := coded.codecs.of(cls)) is not None:
            row = coded.row(own)
        if row is None:
            kind = named.kind_of(cls) if named.can_be_named(cls) else ""
            if not kind:
                return self._side.write_other
            row = named.row_for(kind, self._side.hold)
        elif row is tensors.write_tensor:
            row = self._write_tensor
        self._rows[cls] = row
        return row

    def _write_tensor(self, tensor: Any) -> Any:
        return tensors.write_tensor(tensor, self._side.devices, self._lends)


def type_name(cls: type) -> str:
    """Return a class's qualified name with its module."""
    return f"{cls.__module__}.{cls.__qualname__}"


_ROWS: dict[str, Row] = {
    **rows.NAMED_ROWS,
    "numpy.ndarray": arrays.write_array,
    "torch.Tensor": tensors.write_tensor,
    "torch.nn.parameter.Parameter": tensors.write_tensor,
    "torch.dtype": tensors.write_name,
    "torch.layout": tensors.write_name,
    "torch.memory_format": tensors.write_name,
    "torch.device": tensors.write_device,
    "torch.Size": tensors.write_size,
    "torch._C.Generator": tensors.write_generator,
    "PIL.Image.Image": pictures.write_picture,
}
_FAMILY_ROWS: dict[str, Row] = {   # these hold for subclasses too
    "numpy.generic": arrays.write_scalar,
    "numpy.dtype": arrays.write_dtype,
    "PIL.ImageFile.ImageFile": pictures.write_picture,
}


def _row_by_name(cls: type) -> Any:
    row = _ROWS.get(type_name(cls))
    if row is not None:
        return row
    return next((_FAMILY_ROWS[name] for name in map(type_name, cls.__mro__) if name in _FAMILY_ROWS), None)


def _names(side: Side) -> Names:
    def loader(module: str) -> Callable[[], Any]:
        return lambda: side.load(module)

    numpy, torch, picture = loader("numpy"), loader("torch"), loader("PIL.Image")
    return Names(
        plain=rows.PLAIN,
        foreign={**arrays.readers(numpy), **tensors.readers(torch, numpy, lambda: side.devices), "PICTURE": pictures.reader(picture)},
        delicate={"DTYPE": arrays.dtype_reader(numpy)},
        bound={**rows.BOUND, "ITEMS": arrays.items_reader(numpy), "CODED": coded.bound(side.unread),
               **named.bound(side.find, side.absent), **side.references()},
        wary=side.wary,
        wary_bound=frozenset({"ITEMS", sealed.CODED.name, sealed.MEMBER.name, sealed.RECORD.name, sealed.NAMED.name, sealed.RAISED.name}),
    )


def _with_path(fault: EncodeFault, value: Any, message: bool) -> EncodeFault:
    if fault.culprit is None:   # nobody knows where it is
        return EncodeFault(None, f"the {'message' if message else 'value'} {fault.why}", fault.hint)
    roots = value if message and fault.culprit is not value else {"value": value}
    path = paths.path_among(roots, fault.culprit)
    return EncodeFault(fault.culprit, f"{path} {fault.why}", fault.hint)
