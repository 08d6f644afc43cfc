"""Normalization and softmax."""

from __future__ import annotations

from typing import Any

from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, axis, dtype, shape
from pipeline.frontends.relay.operators.common import Converter
from pipeline.frontends.relay.operators.indexing import slice_axis

op = relax.op

_LARGEST_WINDOW = 255


def _batch_norm(builder: BindingBuilder, attrs: Attributes, x: Any, *parameters: Any) -> Any:
    """Return the normalised tensor; inference keeps mean and variance."""
    if len(parameters) != 4:
        raise ModelError(f"expected gamma, beta, mean and variance, found {len(parameters)} parameters")
    call = op.nn.batch_norm(
        x,
        *parameters,
        axis=axis(x, attrs.integer("axis", 1)),
        epsilon=attrs.number("epsilon", 1e-5),
        center=attrs.flag("center", True),
        scale=attrs.flag("scale", True),
        training=False,
    )
    return builder.emit(call)[0], parameters[2], parameters[3]


def _affine(builder: BindingBuilder, attrs: Attributes, gamma: Any, beta: Any) -> tuple[Any, Any]:
    """Return scale and shift, neutral where an attribute disables them. Relax's kernels use them always."""
    if not attrs.flag("scale", True):
        gamma = builder.fill(1, shape(gamma), dtype(gamma))
    if not attrs.flag("center", True):
        beta = builder.fill(0, shape(beta), dtype(beta))
    return gamma, beta


def _layer_norm(builder: BindingBuilder, attrs: Attributes, x: Any, gamma: Any, beta: Any) -> Any:
    scale, shift = _affine(builder, attrs, gamma, beta)
    number, epsilon = axis(x, attrs.integer("axis", -1)), attrs.number("epsilon", 1e-5)
    return builder.emit(op.nn.layer_norm(x, scale, shift, axes=[number], epsilon=epsilon))


def _instance_norm(builder: BindingBuilder, attrs: Attributes, x: Any, gamma: Any, beta: Any) -> Any:
    scale, shift = _affine(builder, attrs, gamma, beta)
    channel, epsilon = axis(x, attrs.integer("axis", 1)), attrs.number("epsilon", 1e-5)
    space = [number for number in range(1, len(shape(x))) if number != channel]
    return builder.emit(op.nn.instance_norm(x, scale, shift, channel_axis=channel, axes=space, epsilon=epsilon))


def _group_norm(builder: BindingBuilder, attrs: Attributes, x: Any, gamma: Any, beta: Any) -> Any:
    scale, shift = _affine(builder, attrs, gamma, beta)
    channel, epsilon = axis(x, attrs.integer("axis", 1)), attrs.number("epsilon", 1e-5)
    space = [number for number in range(1, len(shape(x))) if number != channel]
    groups = attrs.integer("num_groups")
    if groups < 1 or shape(x)[channel] % groups:
        raise ModelError(f"{shape(x)[channel]} channels do not divide into {groups} groups")
    call = op.nn.group_norm(x, scale, shift, num_groups=groups, channel_axis=channel, axes=space, epsilon=epsilon)
    return builder.emit(call)


def _l2_normalize(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    axes = [axis(x, number) for number in attrs.integers("axis", [])] or list(range(len(shape(x))))
    squares = builder.emit(op.sum(builder.emit(op.multiply(x, x)), axis=axes, keepdims=True))
    # The bound belongs to the sum of squares, not to its root, as in TVM's topi.l2_normalize.
    divisor = builder.emit(op.maximum(squares, builder.constant(attrs.number("eps"), dtype(x))))
    return builder.emit(op.divide(x, builder.emit(op.sqrt(divisor))))


def _lrn(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    """Divide by a power of squares summed over neighbouring channels."""
    number, size = axis(x, attrs.integer("axis", 1)), attrs.integer("size", 5)
    if not 1 <= size <= _LARGEST_WINDOW or size % 2 == 0:
        raise ModelError(f"size={size} is not supported; expected an odd number up to {_LARGEST_WINDOW}")
    widths = [0] * (2 * len(shape(x)))
    widths[2 * number : 2 * number + 2] = [size // 2] * 2
    squares = builder.emit(op.nn.pad(builder.emit(op.multiply(x, x)), widths))
    extent = shape(x)[number]
    # A sum of shifted slices: Relax has no operator for it, and pooling only runs over space.
    total = slice_axis(builder, squares, number, 0, extent)
    for start in range(1, size):
        total = builder.emit(op.add(total, slice_axis(builder, squares, number, start, start + extent)))
    alpha, beta, bias = attrs.number("alpha", 1e-4), attrs.number("beta", 0.75), attrs.number("bias", 2)
    # alpha is divided by the size, as in ONNX.
    weighted_sum = builder.emit(op.multiply(total, builder.constant(alpha / size, dtype(x))))
    base = builder.emit(op.add(weighted_sum, builder.constant(bias, dtype(x))))
    return builder.emit(op.divide(x, builder.emit(op.power(base, builder.constant(beta, dtype(x))))))


def _softmax(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    return builder.emit(op.nn.softmax(x, axis=axis(x, attrs.integer("axis", -1))))


def _log_softmax(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    return builder.emit(op.nn.log_softmax(x, axis=axis(x, attrs.integer("axis", -1))))


TABLE: dict[str, Converter] = {
    "nn.batch_norm": _batch_norm,
    "nn.layer_norm": _layer_norm,
    "nn.instance_norm": _instance_norm,
    "nn.group_norm": _group_norm,
    "nn.l2_normalize": _l2_normalize,
    "nn.lrn": _lrn,
    "nn.softmax": _softmax,
    "nn.fast_softmax": _softmax,
    "nn.log_softmax": _log_softmax,
}
