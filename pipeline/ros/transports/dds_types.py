"""DDS types: messages as Cyclone DDS describes them, with raw samples."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from pipeline.ros.messages.types import DTYPES, MessageField, fields
from pipeline.system.optional import require

if TYPE_CHECKING:
    from types import ModuleType

    from pipeline.ros.transports.base import Payload

IDL = {"char": "uint8"}
"""Primitive types of ROS with another name in IDL, as ROS 2 generates it. IDL's octet is a byte here."""

OCTETS = ("byte", "char", "int8", "uint8")


def library(part: str) -> ModuleType:
    """Return a module of Cyclone DDS, or raise `MissingExtra`."""
    return require(f"cyclonedds.{part}", "ros2", "ROS 2 over DDS")


@cache
def describe_type(name: str, *, octets: bool = False) -> Any:
    """Return a Cyclone DDS type with raw CDR samples.

    Cyclone's own Python types make a list of a sequence of bytes, which takes 30 ms for a small picture.  So samples
    are only described by such a type, for receivers that compare types, and encoded and decoded by `cdr`.  Nodes of
    ROS 2 compare names; programs that use DDS itself compare types, and never match those that differ.
    """
    idl = library("idl")
    package, _, type_name = name.partition("/msg/")
    struct = idl.make_idl_struct(
        f"{type_name}_",
        f"{package}.msg.dds_.{type_name}_",
        {member.name: _type(member, octets=octets) for member in fields(name)},
        # Samples are payloads, and need none of the members that a dataclass would check.
        dataclassify=False,
    )
    # The methods by which Cyclone makes bytes of a sample and a sample of bytes.
    struct.__init__ = _keep
    struct.serialize = lambda self, *_, **__: _Padding(self.payload)
    struct.deserialize = classmethod(lambda cls, data, *_, **__: cls(data))
    struct.deserialize_key = classmethod(lambda cls, *_, **__: cls(b""))
    return struct


def _keep(self: Any, payload: Payload) -> None:
    self.payload = payload


class _Padding:
    """Payload with the methods for Cyclone's writer, free of `bytearray`'s copies."""

    def __init__(self, payload: Payload) -> None:
        self._payload = payload

    def __len__(self) -> int:
        return len(self._payload)

    def ljust(self, size: int, fill: bytes) -> memoryview:
        """Return the payload, filled up to `size`."""
        # DDS sends multiples of four bytes.
        payload = self._payload if len(self._payload) == size else self._payload.ljust(size, fill)
        return memoryview(payload).toreadonly()


def _type(field: MessageField, *, octets: bool) -> Any:
    types = library("idl.types")
    if field.kind in ("string", "bool"):
        element: Any = str if field.kind == "string" else bool
    elif field.kind in DTYPES:
        element = types.byte if octets and field.kind in OCTETS else getattr(types, IDL.get(field.kind, field.kind))
    else:
        element = _plain(field.kind, octets=octets)
    if field.count is None:
        return element
    return types.array[element, field.count] if field.count else types.sequence[element]


@cache
def _plain(name: str, *, octets: bool) -> Any:
    package, _, type_name = name.partition("/msg/")
    members = {member.name: _type(member, octets=octets) for member in fields(name)}
    # With members, unlike the outer type: Cyclone describes them to peers, and never makes one.
    return library("idl").make_idl_struct(f"{type_name}_", f"{package}.msg.dds_.{type_name}_", members)
