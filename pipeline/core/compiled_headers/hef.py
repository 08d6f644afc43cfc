"""Hailo's .hef: the chip and the streams, by HailoRT's public schema hef.proto."""

from __future__ import annotations

import struct

from pipeline.core.compiled_headers.header import Header, Message
from pipeline.core.plan.stage_plan import TensorSpec

# Magic, version and bytes of the message, in network order; then what belongs to the version (hef_internal.hpp).
_HEAD = struct.Struct(">4sII")
_HEADER_BYTES = {0: 32, 1: 28, 2: 44, 3: 56}

# ProtoHEFHwArch.
_CHIPS = {0: "hailo8", 1: "hailo8p", 2: "hailo8r", 3: "hailo8l", 4: "hailo15m", 5: "hailo10h", 103: "hailo15h"}

Layer = tuple[bool, TensorSpec]
"""True for an output, and the tensor."""


def read_header(content: bytes) -> Header:
    """Return a file's facts, without tensors where they are not plain arrays; `ValueError` if it is damaged."""
    _, version, size = _HEAD.unpack_from(content.ljust(_HEAD.size, b"\0"))
    if version not in _HEADER_BYTES:
        raise ValueError(f"its version is {version}, and not one of 0 to 3")
    begin = _HEADER_BYTES[version]
    if begin + size > len(content):
        raise ValueError("it is cut off")
    hef = Message(memoryview(content)[begin : begin + size])
    groups = hef.messages(2)
    layers = _layers(groups[0]) if len(groups) == 1 else []
    inputs, outputs = (tuple(spec for leaves, spec in layers if leaves is side) for side in (False, True))
    return Header("hef", _CHIPS.get(hef.message(1).number(1), ""), inputs, outputs)


def _layers(group: Message) -> list[Layer]:
    """Return the tensors of a network group; none if HailoRT has a part in making one of them."""
    operators = group.messages(8)
    # Boxes that the host sorts out have a form of their own.
    if any(operator.messages(5) or operator.messages(6) for operator in operators):
        return []
    layers = []
    for core in (group, *(operator.message(4) for operator in operators)):
        # For a chip that may be divided, the parts are alike.
        for context in core.messages(3) or core.message(7).message(1).messages(3):
            for edge in context.message(3).messages(2):
                # Of several contexts, edges between them stay on the chip.
                if edge.message(5).number(3) == 0:
                    # Several streams as one, or planes of a picture.
                    if edge.number(2) != 0:
                        return []
                    layers.append((edge.number(1) == 1, _spec(edge.message(3), leaves=edge.number(1) == 1)))
    return layers


def _spec(layer: Message, *, leaves: bool) -> TensorSpec:
    shape, numbers = layer.message(2), layer.message(3)
    height, width, channels = shape.number(1), shape.number(3), shape.number(5)
    # An input whose step is 1 takes a picture's bytes as they are; all else is converted by HailoRT.
    is_bytes = not leaves and (numbers.real(1), numbers.real(2)) == (0, 1)
    extents = (1, channels) if height == width == 1 else (1, channels, height, width)
    return TensorSpec(layer.text(1), extents, "uint8" if is_bytes else "float32")
