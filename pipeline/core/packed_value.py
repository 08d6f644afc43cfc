"""Packed values: text, sequences, maps and tensors of any shape in fixed bytes.

A frame's tensors have fixed shapes, so that memory, copies and wires are planned once.  A value without one travels in
a vector of bytes that is large enough, and is packed and unpacked where a frame enters and leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from pipeline.core.plan.stage_plan import TensorSpec
from pipeline.errors import InputError

CAPACITY = 1048573
"""Size of a packed value in bytes; a prime number, so that no tensor of a model has this shape by chance."""

DTYPE = "uint8"

# A value's length in bytes comes first.
_HEADER = 8


def is_packed(spec: TensorSpec) -> bool:
    """Check if a tensor is a packed value."""
    return spec.shape == (CAPACITY,) and spec.dtype == DTYPE


def is_packed_array(array: np.ndarray) -> bool:
    """Check if an array is a packed value."""
    return array.shape == (CAPACITY,) and array.dtype == np.uint8


def read(array: np.ndarray) -> Any:
    """Return an array's packed value, or else the array."""
    return unpack(array) if is_packed_array(array) else array


def write(target: np.ndarray, value: Any) -> None:
    """Copy a value into an array; `InputError` for another shape."""
    if is_packed_array(target):
        pack_into(target, value)
        return
    # NumPy would repeat what has less.
    if np.shape(value) != target.shape:
        raise InputError(
            f"an operator makes {list(np.shape(value))} of this frame, where the model states {list(target.shape)}, "
            "since the shape depends on values"
        )
    np.copyto(target, value, casting="no")


def pack(value: Any) -> np.ndarray:
    """Return a value as bytes.

    Raises `InputError` if it is larger than a frame has room for, or of another type.

    `value`: text, an array of text or of numbers, or lists and maps of these.
    """
    target = np.zeros(CAPACITY, np.uint8)
    pack_into(target, value)
    return target


def pack_into(target: np.ndarray, value: Any) -> None:
    """Pack a value into bytes, and leave the ones after it."""
    try:
        data = msgspec.msgpack.encode(_plain(value))
    except TypeError as error:
        raise InputError(f"a value cannot be put into a frame: {error}") from None
    if len(data) > CAPACITY - _HEADER:
        raise InputError(f"a value takes {len(data)} bytes, and a frame has room for {CAPACITY - _HEADER}")
    target[:_HEADER] = np.frombuffer(len(data).to_bytes(_HEADER, "little"), np.uint8)
    target[_HEADER : _HEADER + len(data)] = np.frombuffer(data, np.uint8)


def unpack(array: np.ndarray) -> Any:
    """Return the value written by `pack`; `InputError` if the bytes hold none."""
    length = int.from_bytes(array[:_HEADER].tobytes(), "little")
    try:
        return _value(msgspec.msgpack.decode(array[_HEADER : _HEADER + length].tobytes()))
    except (msgspec.DecodeError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError(f"bytes hold no packed value: {error}") from None


def _plain(value: Any) -> Any:
    """Return a value of lists, texts and bytes only. The first item of a list is its type."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ["map", [[_plain(key), _plain(item)] for key, item in value.items()]]
    if isinstance(value, list | tuple):
        return ["list", [_plain(item) for item in value]]
    if isinstance(value, bool | int | float):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "OUS":
        return ["text", list(array.shape), [_text(item) for item in array.reshape(-1).tolist()]]
    return ["array", array.dtype.name, list(array.shape), array.tobytes()]


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError(f"an array of objects may hold text only, not a {type(value).__name__}")
    return value


def _value(plain: Any) -> Any:
    if not isinstance(plain, list):
        return plain
    kind, *parts = plain
    if kind == "map":
        return {_value(key): _value(item) for key, item in parts[0]}
    if kind == "list":
        return [_value(item) for item in parts[0]]
    if kind == "text":
        return np.array(parts[1], object).reshape(parts[0])
    dtype, shape, data = parts
    # A copy: an array over the bytes could not be written to.
    return np.frombuffer(data, np.dtype(dtype)).reshape(shape).copy()
