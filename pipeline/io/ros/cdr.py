"""CDR: messages as bytes and back, as DDS and ROS 2 send them; arrays pass as a whole and are never made into lists."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.io.ros.messages import DTYPES, TYPES, Field, fields

LITTLE = b"\x00\x01\x00\x00"
"""What stands in front: plain CDR, the least byte first."""

ORDERS = {(0, 0): (">", 8), (0, 1): ("<", 8), (0, 6): (">", 4), (0, 7): ("<", 4)}
"""First two bytes -> order of bytes, largest alignment; the latter two are the same in the newer encoding."""

CODES = {name: np.dtype(dtype).char for name, dtype in DTYPES.items()}
# NumPy's letters for 8 bytes depend on the platform's C; those of `struct` do not.
CODES |= {"int64": "q", "uint64": "Q", "int32": "i", "uint32": "I"}


@cache
def _packing(order: str, kind: str) -> struct.Struct:
    return struct.Struct(f"{order}{CODES[kind]}")


@cache
def _dtype(order: str, kind: str) -> np.dtype:
    return np.dtype(f"{order}{DTYPES[kind]}")


def encode(message: Any, name: str) -> bytes:
    """Return a message as bytes, the encapsulation in front.

    Parameters
    ----------
    message : object
        With the fields of the type; arrays of numbers may be anything that NumPy takes.
    name : str
        Its type, such as ``"sensor_msgs/msg/Image"``.

    Raises
    ------
    InputError
        If the type is unknown, or a value does not fit its field.
    """
    writer = _Writer()
    writer.fields(message, name)
    return b"".join((LITTLE, *writer.parts))


def decode(data: bytes | memoryview, name: str) -> Any:
    """Return the message in `data`; arrays of numbers are views of it.

    Raises
    ------
    InputError
        If the type is unknown, or `data` is no such message.
    """
    fields(name)
    order = ORDERS.get(tuple(data[:2]))  # type: ignore[arg-type] # shorter than two bytes is in no table
    if order is None or len(data) < len(LITTLE):
        raise InputError(f"a message of type {name} is not in plain CDR; it begins with {bytes(data[:4]).hex()!r}")
    try:
        return _Reader(data, *order).fields(name)
    except (struct.error, ValueError, IndexError):
        raise InputError(f"a message of type {name} ends after {len(data)} bytes, in the middle of a field") from None


class _Writer:
    def __init__(self) -> None:
        self.parts: list[Any] = []
        self._size = 0

    def fields(self, message: Any, name: str) -> None:
        for field in fields(name):
            try:
                self._field(getattr(message, field.name), field)
            except (struct.error, TypeError, ValueError, OverflowError, AttributeError) as error:  # noqa: PERF203
                raise InputError(f"{name} has the field {field.name} of type {field.kind}: {error}") from None

    def _field(self, value: Any, field: Field) -> None:
        if field.count is None:
            self._one(value, field.kind)
            return
        if field.count and len(value) != field.count:
            raise ValueError(f"it has {field.count} values, not {len(value)}")
        array = _array(value, field.kind) if field.kind in DTYPES else None
        if not field.count:
            self._number("uint32", len(value) if array is None else array.size)
        if array is None:
            for each in value:
                self._one(each, field.kind)
        elif array.size:
            self._align(array.itemsize)
            self._add(array.data.cast("B"))

    def _one(self, value: Any, kind: str) -> None:
        if kind == "string":
            text = value.encode() + b"\0"
            self._number("uint32", len(text))
            self._add(text)
        elif kind in DTYPES:
            self._number(kind, value)
        else:
            self.fields(value, kind)

    def _number(self, kind: str, value: Any) -> None:
        packed = _packing("<", kind).pack(value)
        self._align(len(packed))
        self._add(packed)

    def _align(self, size: int) -> None:
        if missing := -self._size % size:
            self._add(bytes(missing))

    def _add(self, part: Any) -> None:
        self.parts.append(part)
        self._size += len(part)


def _array(value: Any, kind: str) -> np.ndarray:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return np.frombuffer(value, np.uint8)
    return np.ascontiguousarray(value, _dtype("<", kind)).reshape(-1)


class _Reader:
    def __init__(self, data: bytes | memoryview, order: str, largest: int) -> None:
        self._data, self._order, self._largest = data, order, largest
        self._position = len(LITTLE)

    def fields(self, name: str) -> Any:
        values = [self._field(field) for field in fields(name)]
        return TYPES[name](*values)

    def _field(self, field: Field) -> Any:
        if field.count is None:
            return self._one(field.kind)
        count = field.count or self._number("uint32")
        return self._array(field.kind, count) if field.kind in DTYPES else self._list(field.kind, count)

    def _array(self, kind: str, count: int) -> np.ndarray:
        dtype = _dtype(self._order, kind)
        if not count:
            return np.empty(0, dtype)
        self._align(dtype.itemsize)
        found = np.frombuffer(self._data, dtype, count, self._position)
        self._position += found.nbytes
        return found

    def _list(self, kind: str, count: int) -> Sequence[Any]:
        # Each takes at least a byte, so that a wrong count ends here instead of filling the memory.
        if count > len(self._data) - self._position:
            raise ValueError(count)
        return [self._one(kind) for _ in range(count)]

    def _one(self, kind: str) -> Any:
        if kind == "string":
            return self._string()
        return self._number(kind) if kind in DTYPES else self.fields(kind)

    def _string(self) -> str:
        length = self._number("uint32")
        text = bytes(self._data[self._position : self._position + length])
        if len(text) < length:
            raise ValueError(length)
        self._position += length
        return text.removesuffix(b"\0").decode(errors="replace")

    def _number(self, kind: str) -> Any:
        packing = _packing(self._order, kind)
        self._align(packing.size)
        (value,) = packing.unpack_from(self._data, self._position)
        self._position += packing.size
        return value

    def _align(self, size: int) -> None:
        self._position += -(self._position - len(LITTLE)) % min(size, self._largest)
