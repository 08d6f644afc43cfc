"""Bytes of a stage's inputs and outputs, unsigned for a signed model."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from onnx import numpy_helper

from pipeline.frontends.extraction import NoCounterpart
from pipeline.frontends.onnx.simplification.tensors import tensors_read
from pipeline.model.passes.quantized import HALF

# What makes bytes of numbers, and the reverse; their third operand is the zero point.
_KINDS = {"QuantizeLinear", "DequantizeLinear"}


def shift(graph: Any, names: Collection[str]) -> None:
    """Let signed tensors be unsigned in place, zero points shifted.

    Raises `NoCounterpart` if an operator takes or makes the bytes themselves, instead of the numbers that they stand
    for.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    constants |= {
        node.output[0]: attribute.t
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    new_constants: dict[str, Any] = {}
    for node in graph.node:
        # Of the operands, the first one is the data of those that may stay.
        if shifted := [name for name in (*tensors_read(node), *node.output) if name in names]:
            _shift_zero_point(node, shifted[0], constants, new_constants)
    graph.initializer.extend(new_constants.values())


def _shift_zero_point(node: Any, name: str, constants: Mapping[str, Any], new_constants: dict[str, Any]) -> None:
    zero_name = node.input[2] if len(node.input) > 2 else ""
    if node.op_type not in _KINDS or zero_name not in constants:
        raise NoCounterpart(f"{name!r} has signed bytes in the model, which {node.op_type} takes or makes")
    zero = numpy_helper.to_array(constants[zero_name])
    new_name = f"{zero_name}:unsigned"
    new_constants[new_name] = numpy_helper.from_array((zero.astype(np.int32) + HALF).astype(np.uint8), new_name)
    node.input[2] = new_name
