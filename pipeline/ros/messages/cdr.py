"""CDR: messages as the bytes of DDS and ROS 2; arrays stay arrays."""

from __future__ import annotations

import struct
from typing import Any

from pipeline.errors import InputError
from pipeline.ros.messages.types import fields, message_store

ENCAPSULATIONS = (b"\x00\x00", b"\x00\x01")
"""First two bytes of plain CDR, the greatest or the least byte first."""


def encode(message: Any, name: str) -> bytearray:
    """Return a message as bytes, the encapsulation in front.

    Types have names such as ``"sensor_msgs/msg/Image"``. Fields that are sequences of numbers are arrays of their
    dtype. Raises `InputError` if the type is unknown, or a value does not fit its field.
    """
    fields(name)
    store, errors = message_store(), _errors()
    try:
        # Not as `bytes`, which would copy each picture once more.
        buffer: bytearray = store.serialize_cdr(message, name, little_endian=True).obj
    except errors as error:
        raise InputError(f"a message of type {name} cannot be written: {error}") from None
    return buffer


def decode(data: bytes | bytearray | memoryview, name: str) -> Any:
    """Decode a message; number arrays are views of `data`.

    Raises `InputError` if the type is unknown, or `data` is no such message.
    """
    fields(name)
    store, errors = message_store(), _errors()
    # Parameter lists and XCDR2 begin with other numbers (encapsulation identifiers of DDS-XTypes), and are laid out
    # otherwise.
    if bytes(data[:2]) not in ENCAPSULATIONS:
        raise InputError(f"a message of type {name} is not in plain CDR; it begins with {bytes(data[:4]).hex()!r}")
    try:
        # A slice of a view copies nothing.  Lengths are compared with that of the message before anything is allocated.
        return store.deserialize_cdr(memoryview(data), name)
    except errors as error:
        raise InputError(f"a message of type {name} is damaged, of {len(data)} bytes: {error}") from None


def _errors() -> tuple[type[Exception], ...]:
    from rosbags.serde import SerdeError

    # What rosbags and NumPy raise for values that do not fit and bytes that end early; found by damaging messages.
    return SerdeError, struct.error, TypeError, ValueError, OverflowError, AttributeError, AssertionError
