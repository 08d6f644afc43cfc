"""Normalisations."""

from __future__ import annotations

from typing import Any

from tvm import relax

from pipeline.frontends.onnx.operators.node_call import Converter, NodeCall, scalar


def _instance_norm(call: NodeCall) -> Any:
    """Return ``InstanceNormalization`` in one pass, not TVM's nine."""
    data, scale, shift = call.inputs
    axes = list(range(2, data.ty.ndim))
    # TVM compiles the operator for these two dtypes only; without axes behind the channels, Relax refuses it.
    if not axes or call.dtype() not in ("float32", "float16"):
        return None
    return relax.op.nn.instance_norm(data, scale, shift, 1, axes, float(call.attributes.get("epsilon", 1e-5)))


def _rms_norm(call: NodeCall) -> Any:
    """Return ``RMSNormalization`` over all axes, which TVM cannot compile."""
    rank = call.inputs[0].ty.ndim
    if int(call.attributes.get("axis", -1)) not in (0, -rank):
        return None
    data = call.normal(relax.op.astype(call.inputs[0], "float32"))
    mean = relax.op.mean(relax.op.multiply(data, data), list(range(rank)), keepdims=True)
    epsilon = scalar(float(call.attributes.get("epsilon", 1e-5)), data)
    norm = relax.op.multiply(data, relax.op.rsqrt(relax.op.add(mean, epsilon)))
    return relax.op.multiply(relax.op.astype(norm, call.dtype()), call.inputs[1])


def _lp_norm(call: NodeCall) -> Any:
    """Return ``LpNormalization``; zero vectors stay zero."""
    data, axis = call.inputs[0], int(call.attributes.get("axis", -1))
    if int(call.attributes.get("p", 2)) == 1:
        length = relax.op.sum(relax.op.abs(data), axis, keepdims=True)
    else:
        length = relax.op.sqrt(relax.op.sum(relax.op.multiply(data, data), axis, keepdims=True))
    length = call.normal(length)
    return relax.op.divide(data, relax.op.where(relax.op.equal(length, scalar(0, data)), scalar(1, data), length))


def _batch_norm(call: NodeCall) -> Any:
    """Return ``BatchNormalization`` in training mode, with updated statistics."""
    if not int(call.attributes.get("training_mode", 0)):
        return None
    data, scale, shift, *statistics = call.inputs
    rank, momentum = data.ty.ndim, float(call.attributes.get("momentum", 0.9))
    axes, shape = [0, *range(2, rank)], [1, -1, *[1] * (rank - 2)]
    mean = call.normal(relax.op.mean(data, axes))
    variance = call.normal(relax.op.variance(data, axes))
    epsilon = scalar(float(call.attributes.get("epsilon", 1e-5)), data)
    deviation = call.normal(relax.op.sqrt(relax.op.add(variance, epsilon)))
    norm = relax.op.divide(relax.op.subtract(data, relax.op.reshape(mean, shape)), relax.op.reshape(deviation, shape))
    norm = relax.op.add(relax.op.multiply(norm, relax.op.reshape(scale, shape)), relax.op.reshape(shift, shape))
    updated = [
        relax.op.add(relax.op.multiply(old, scalar(momentum, old)), relax.op.multiply(new, scalar(1 - momentum, old)))
        for old, new in zip(statistics, (mean, variance), strict=True)
    ]
    return relax.Tuple([call.normal(norm), *(call.normal(value) for value in updated)])


CONVERTERS: dict[str, Converter] = {
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "LpNormalization": _lp_norm,
    "RMSNormalization": _rms_norm,
}
