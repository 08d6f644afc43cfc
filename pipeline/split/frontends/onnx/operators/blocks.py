"""Operators that move blocks of pixels between channels and places."""

from __future__ import annotations

from typing import Any

from tvm import relax

from pipeline.split.frontends.onnx.operators.node_call import NodeCall


def _space_to_depth(call: NodeCall) -> Any:
    # TVM does not read the attribute and always does what DCR says.
    if call.text("mode", "DCR") != "CRD":
        return None
    size = int(call.attributes["blocksize"])
    batch, channels, height, width = call.shape()
    # CRD: the channel is the outermost part of the new channels, then row and column inside of the block.
    parts = relax.op.reshape(call.inputs[0], (batch, channels, height // size, size, width // size, size))
    blocks = relax.op.permute_dims(parts, [0, 1, 3, 5, 2, 4])
    return relax.op.reshape(blocks, (batch, channels * size * size, height // size, width // size))


CONVERTERS = {"SpaceToDepth": _space_to_depth}
