"""Files as vendors' compilers write them, without the parts that only their chips read."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

SHAPE = (1, 4, 6, 8)


def rknn(path: Path, chip: str = "rk3588", **changes: Any) -> Path:
    """Write a file as rknn-toolkit2 2.5.0 does, without the chip's own part."""
    tensors = [{"tensor_id": 0, "size": SHAPE, "url": "f"}, {"tensor_id": 1, "size": SHAPE, "url": "g"}]
    ends = [
        {"left": "input", "left_tensor_id": 0, "right": "norm_tensor", "right_tensor_id": 0},
        {"left": "output", "left_tensor_id": 0, "right": "norm_tensor", "right_tensor_id": 1},
    ]
    text = json.dumps({"target_platform": [chip], "norm_tensor": tensors, "graph": ends, **changes}).encode()
    part = b"\x50\0\0\0RKNN" + bytes(56)
    path.write_bytes(
        struct.pack("<8sQQ", b"RKNN", 6, len(part)) + bytes(40) + part + struct.pack("<Q", len(text)) + text
    )
    return path


def message(*fields: tuple[int, int | float | bytes | str]) -> bytes:
    """Return a message of Protocol Buffers: whole numbers as varints, others as floats of 32 bits, or bytes."""
    content = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            content += varint(number << 3) + varint(value)
        elif isinstance(value, float):
            content += varint(number << 3 | 5) + struct.pack("<f", value)
        else:
            data = value.encode() if isinstance(value, str) else value
            content += varint(number << 3 | 2) + varint(len(data)) + data
    return bytes(content)


def varint(value: int) -> bytes:
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*content, value])


def hef(path: Path, chip: int = 3, *, host_part: bool = False) -> Path:
    """Write a file by ``hef.proto`` and ``hef_internal.hpp`` of HailoRT 4.18, with edge layers and a header alone."""
    shape = message((1, 32), (3, 48), (5, 3))
    picture = message((1, "net/input_layer1"), (2, shape), (3, message((1, 0.0), (2, 1.0))))
    scores = message((1, "net/fc1"), (2, message((1, 1), (3, 1), (5, 10))), (3, message((1, 7.0), (2, 0.25))))
    inner = message((1, 1), (3, message((1, "net/between"))), (5, message((3, 1))))
    edges = [message((1, 0), (3, picture)), inner, message((1, 1), (3, scores))]
    context = message((2, b"\0" * 200), (3, message(*((2, edge) for edge in edges))))
    core = message((1, "net"), (4, message((3, context))))
    operators = [core, message((1, "nms"), (5, message((4, 80))))] if host_part else [core]
    group = message(*((8, operator) for operator in operators))
    body = message((1, message((1, chip))), (2, group))
    path.write_bytes(struct.pack(">4sII", b"\x01HEF", 1, len(body)) + bytes(16) + body + b"weights")
    return path


def context(path: Path, **attributes: Any) -> Path:
    """Write an ONNX file with a provider's context."""
    operator = helper.make_node(
        "EPContext", ["f"], ["g"], domain="com.microsoft", source="QNNExecutionProvider", main_context=1, **attributes
    )
    ends = [helper.make_tensor_value_info(name, TensorProto.UINT8, [1, 4]) for name in "fg"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(helper.make_graph([operator], "m", ends[:1], ends[1:]), opset_imports=opsets), path)
    return path


def engine(path: Path, version: tuple[int, int, int, int] = (10, 3, 0, 30)) -> Path:
    """Write the begin of an engine, with its version where trtexec reads it; and its card."""
    path.write_bytes(b"ftrt" + bytes(20) + bytes(version) + bytes(100))
    ends = '[{ name = "x", shape = [1, 3, 8, 8] }]'
    path.with_suffix(".toml").write_text(f"[compiled]\ninputs = {ends}\noutputs = {ends.replace('x', 'y')}\n")
    return path
