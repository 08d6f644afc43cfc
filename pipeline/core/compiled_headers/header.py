"""Header: facts that a compiled file states of itself."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.core.plan.stage_plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization


@dataclass(frozen=True)
class Header:
    """Facts of a compiled file; empty ones are unknown."""

    format: str
    """Key of `pipeline.core.compiled_file.COMPILED_FORMATS`."""
    chip: str = ""
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    content: bytes = b""
    """Content with what lay in files beside it; empty if that is the file itself."""
    quantizations: tuple[Quantization, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Properties in which the model's card is looked for."""
    version: str = ""
    """Version of the runtime that opens it."""


class Message:
    """A message of Protocol Buffers, read without its schema; `ValueError` if it is none."""

    def __init__(self, content: bytes | memoryview = b"") -> None:
        self._fields = defaultdict[int, list[int | memoryview]](list)
        view, position = memoryview(content), 0
        while position < len(view):
            tag, position = _varint(view, position)
            if tag & 7 == 0:
                value, position = _varint(view, position)
                self._fields[tag >> 3].append(value)
                continue
            size, position = _varint(view, position) if tag & 7 == 2 else ({1: 8, 5: 4}.get(tag & 7, -1), position)
            if size < 0 or position + size > len(view):
                raise ValueError("a message in it is cut off")
            self._fields[tag >> 3].append(view[position : position + size])
            position += size

    def messages(self, number: int) -> list[Message]:
        """Return the messages of a repeated field."""
        return [Message(value) for value in self._fields[number] if isinstance(value, memoryview)]

    def message(self, number: int) -> Message:
        """Return a field's message, empty if it is missing."""
        return next(iter(self.messages(number)), Message())

    def number(self, number: int) -> int:
        """Return a field's whole number, 0 if it is missing."""
        return next((value for value in self._fields[number] if isinstance(value, int)), 0)

    def real(self, number: int) -> float:
        """Return a field's float of 32 bits, 0 if it is missing."""
        values = [value for value in self._fields[number] if isinstance(value, memoryview) and len(value) == 4]
        return float(struct.unpack("<f", values[0])[0]) if values else 0.0

    def text(self, number: int) -> str:
        """Return a field's text, "" if it is missing."""
        return next((bytes(value).decode() for value in self._fields[number] if isinstance(value, memoryview)), "")


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift, byte in zip(range(0, 70, 7), view[position : position + 10], strict=False):
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + shift // 7 + 1
    raise ValueError("a message in it is cut off")
