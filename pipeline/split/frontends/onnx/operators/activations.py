"""Activations and other functions of single elements."""

from __future__ import annotations

from typing import Any

from tvm import relax

from pipeline.split.frontends.onnx.operators.node_call import NodeCall, scalar


def _thresholded_relu(call: NodeCall) -> Any:
    """Return ``ThresholdedRelu`` as a choice; TVM's product with 0 or 1 makes NaN of NaN and of minus infinity."""
    data = call.inputs[0]
    threshold = scalar(float(call.attributes.get("alpha", 1.0)), data)
    return relax.op.where(relax.op.greater(data, threshold), data, scalar(0, data))


def _power(call: NodeCall) -> Any:
    if "int" in call.dtype():
        raise ValueError("of integers, which TVM cannot compile")


CONVERTERS = {"Pow": _power, "ThresholdedRelu": _thresholded_relu}
