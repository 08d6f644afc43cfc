"""Rockchip's .rknn: chip and tensors, by the description in JSON behind the chip's part."""

from __future__ import annotations

import json
import struct
from typing import Any

from pipeline.core.compiled_headers.header import Header
from pipeline.core.plan.stage_plan import TensorSpec

# Signature, version, and bytes of the chip's part; from version 2 on a digest stands in front of that.
_HEAD = struct.Struct("<8sQQ")
_DIGEST_BYTES = 40
_SIZE = struct.Struct("<Q")


def read_header(content: bytes) -> Header:
    """Return a file's facts; `ValueError` if it is damaged.

    The library converts to and from floats, so that tensors are these; chips of before 2020 order extents otherwise,
    and get no tensors.
    """
    try:
        _, version, size = _HEAD.unpack_from(content)
        begin = _HEAD.size + (_DIGEST_BYTES if version & 0xFFF > 1 and size else 0)
        (length,) = _SIZE.unpack_from(content, begin + size)
        end = begin + size + _SIZE.size + length
        if end > len(content):
            raise ValueError("it is cut off")
        description: dict[str, Any] = json.loads(content[end - length : end])
        chip = ", ".join(description["target_platform"][:1])
        inputs, outputs = (_specs(description, side) for side in ("input", "output"))
    except (struct.error, KeyError, TypeError) as error:
        raise ValueError("its description is missing or of another form") from error
    is_current = content[begin + 4 : begin + 8] == b"RKNN"
    return Header("rknn", chip, inputs, outputs) if is_current else Header("rknn", chip)


def _specs(description: dict[str, Any], side: str) -> tuple[TensorSpec, ...]:
    tensors = {tensor["tensor_id"]: tensor for tensor in description["norm_tensor"]}
    ends = sorted((end for end in description["graph"] if end["left"] == side), key=lambda end: end["left_tensor_id"])
    rows = [tensors[end["right_tensor_id"]] for end in ends]
    return tuple(TensorSpec(str(row["url"]), tuple(map(int, row["size"]))) for row in rows)
