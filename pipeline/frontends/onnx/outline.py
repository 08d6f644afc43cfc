"""Outline of an ONNX file: protobuf without its large tensors, mapped instead."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from pipeline.system.memory import LARGE

# Numbers of fields in ONNX's protobuf.
_GRAPH, _INITIALIZER, _RAW, _ENTRIES, _LOCATION = 7, 5, 9, 13, 14
_EXTERNAL = b"\x70\x01"
"""The field `_LOCATION` with the value EXTERNAL."""

_BYTES = 2
"""The wire type of messages and bytes; the others are numbers."""


def outline(path: Path) -> bytes:
    """Return a file's model with large initializers as external data.

    Raises `ValueError` if the file is no protobuf of a model; `OSError` if it cannot be read.
    """
    with path.open("rb") as stream:
        # An empty file cannot be mapped; no bytes are a message without fields.
        if not path.stat().st_size:
            return b""
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return b"".join(_model(data, path.name.encode()))


def _model(data: mmap.mmap, name: bytes) -> Iterator[bytes]:
    for number, kind, start, value, end in _fields(data, 0, len(data)):
        # Only the main graph: branches of an If have graphs of their own, but are refused anyway.
        if (number, kind) == (_GRAPH, _BYTES):
            yield from _message(_GRAPH, b"".join(_graph(data, value, end, name)))
        else:
            yield data[start:end]


def _graph(data: mmap.mmap, start: int, end: int, name: bytes) -> Iterator[bytes]:
    for number, kind, first, value, last in _fields(data, start, end):
        # A message is copied as a whole unless it is large; its raw data are most of it then.
        if (number, kind) == (_INITIALIZER, _BYTES) and last - value >= LARGE:
            yield from _message(_INITIALIZER, b"".join(_tensor(data, value, last, name)))
        else:
            yield data[first:last]


def _tensor(data: mmap.mmap, start: int, end: int, name: bytes) -> Iterator[bytes]:
    for number, kind, first, value, last in _fields(data, start, end):
        if (number, kind) == (_RAW, _BYTES) and last - value >= LARGE:
            # The three keys of a StringStringEntryProto that ONNX's external data have.
            entries = {b"location": name, b"offset": b"%d" % value, b"length": b"%d" % (last - value)}
            for key, text in entries.items():
                yield from _message(_ENTRIES, b"".join([*_message(1, key), *_message(2, text)]))
            yield _EXTERNAL
        else:
            yield data[first:last]


def _message(number: int, content: bytes) -> Iterator[bytes]:
    # A tag is the field's number and, in the lower three bits, the wire type.
    yield _varint(number << 3 | _BYTES)
    yield _varint(len(content))
    yield content


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield a field's number, wire type, start, value and end."""
    offset = start
    while offset < end:
        tag, value = _number(data, offset, end)
        kind = tag & 7
        if kind == _BYTES:
            length, value = _number(data, value, end)
            last = value + length
        else:
            # Wire types 0, 1 and 5 are varint, 64 and 32 bits; 3 and 4, groups, were dropped from protobuf.
            last = {0: lambda: _number(data, value, end)[1], 1: lambda: value + 8, 5: lambda: value + 4}.get(  # noqa: B023
                kind, lambda: end + 1
            )()
        if last > end:
            raise ValueError("it ends in the middle of a field")
        yield tag >> 3, kind, offset, value, last
        offset = last


def _number(data: mmap.mmap, offset: int, end: int) -> tuple[int, int]:
    """Return a number of variable length and where it ends."""
    value = 0
    # Ten bytes of seven bits hold 64; a longer number is damage.
    for shift in range(0, 70, 7):
        if offset >= end:
            break
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise ValueError("it ends in the middle of a number")


def _varint(value: int) -> bytes:
    encoded_bytes = bytearray()
    while value >= 0x80:
        encoded_bytes.append(value & 0x7F | 0x80)
        value >>= 7
    encoded_bytes.append(value)
    return bytes(encoded_bytes)
