"""Normalisations."""

from __future__ import annotations

from typing import Any

from tvm import relax

from pipeline.split.frontends.onnx.operators.node_call import NodeCall


def _instance_norm(call: NodeCall) -> Any:
    """Return ``InstanceNormalization`` whole; of TVM's nine operators each would pass over the data by itself."""
    data, scale, shift = call.inputs
    axes = list(range(2, data.ty.ndim))
    # TVM compiles the operator for these two dtypes only; without axes behind the channels, Relax refuses it.
    if not axes or call.dtype() not in ("float32", "float16"):
        return None
    return relax.op.nn.instance_norm(data, scale, shift, 1, axes, float(call.attributes.get("epsilon", 1e-5)))


def _rms_norm(call: NodeCall) -> Any:
    if int(call.attributes.get("axis", -1)) in (0, -len(call.shape())):
        raise ValueError("over all axes, which TVM cannot compile")


CONVERTERS = {"InstanceNormalization": _instance_norm, "RMSNormalization": _rms_norm}
