"""Layout-agnostic operators: no kernel, channels last if their operands are."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.kernels.layout.expressions import AXIS, TO_LAST, extents, is_image, name_of
from pipeline.executor.kernels.layout.rewriter import Rewrite, Rewriter
from pipeline.model.passes.bindings import replace
from pipeline.model.requantization import Requantization

# Element by element, so that any layout does; several operands are broadcast.
ELEMENTWISE = {
    "abs", "add", "astype", "ceil", "clip", "cos", "divide", "erf", "exp", "floor", "log", "maximum", "minimum",
    "multiply", "negative", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.relu6", "nn.silu", "nn.softplus",
    "power", "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "subtract", "tanh",
}  # fmt: skip
"""Elementwise operators with broadcast operands."""

_WINDOW = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad")
_POOLS = {"nn.max_pool2d": _WINDOW, "nn.avg_pool2d": _WINDOW, "nn.adaptive_avg_pool2d": ("output_size",)}
_REDUCTIONS = {"mean", "sum", "max", "min"}


class LayoutAgnostic(Rewrite):
    """Operators scheduled by TVM in the current layout."""

    operators = frozenset({*ELEMENTWISE, *_POOLS, *_REDUCTIONS, "call_tir", "concat", "reshape"})

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Return the same operator on operands with channels last."""
        name = name_of(call)
        if name in ELEMENTWISE:
            return _elementwise(rewriter, call)
        if name == "call_tir":
            return _requantize(rewriter, call)
        if name in _POOLS:
            return _pool(rewriter, call)
        if name in _REDUCTIONS:
            return _reduction(rewriter, call)
        return _concat(rewriter, call) if name == "concat" else _reshape(rewriter, call)


def _elementwise(rewriter: Rewriter, call: Any) -> Any:
    tensors = [argument for argument in call.args if isinstance(argument, relax.Var | GenericConst)]
    if not any(rewriter.is_last(tensor) for tensor in tensors) or not all(_fits(tensor) for tensor in tensors):
        return None
    # Shapes, scalars and attributes that are operands have no layout.
    return replace(call, lambda node: _image(rewriter, node) if isinstance(node, relax.Var | GenericConst) else node)


def _requantize(rewriter: Rewriter, call: Any) -> Any:
    requantization = Requantization.of(call)
    if requantization is None or not rewriter.is_last(call.args[1].fields[0]):
        return None
    axis = AXIS[requantization.axis % 4] - 4
    # A name that none of the stage's own kernels has.
    return requantization.call(rewriter.builder, rewriter.last(call.args[1].fields[0]), axis, "requantize_image")


def _fits(value: Any) -> bool:
    return is_image(value.ty) or (isinstance(value, GenericConst) and len(value.ty.shape) <= 4)


def _image(rewriter: Rewriter, value: Any) -> Any:
    """Return an operand broadcast against a channels-last image."""
    if is_image(value.ty):
        return rewriter.last(value)
    array = value.value.numpy()
    # One number is broadcast over any layout.
    if array.ndim == 0 or array.size == 1:
        return relax.const(array.reshape(()))
    return relax.const(np.ascontiguousarray(array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(TO_LAST)))


def _pool(rewriter: Rewriter, call: Any) -> Any:
    if call.attrs.layout != "NCHW":
        return None
    attrs = {key: getattr(call.attrs, key) for key in _POOLS[name_of(call)]}
    operator = getattr(relax.op.nn, name_of(call).removeprefix("nn."))
    return operator(rewriter.last(call.args[0]), **attrs, layout="NHWC", out_layout="NHWC")


def _reduction(rewriter: Rewriter, call: Any) -> Any:
    source, axes = call.args[0], call.attrs.axis
    if not rewriter.is_last(source) or axes is None:
        return None
    axes = {int(axis) % 4 for axis in axes}
    # The axes that remain have the model's order only if the channels, or all pixels, are gone.
    if not call.attrs.keepdims and not ({2, 3} <= axes or 1 in axes):
        return None
    operator = getattr(relax.op, name_of(call))
    return operator(rewriter.last(source), sorted(AXIS[axis] for axis in axes), bool(call.attrs.keepdims))


def _concat(rewriter: Rewriter, call: Any) -> Any:
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
    # One operand with channels last is enough: turning the others moves less than turning the result back.
    if not any(rewriter.is_last(field) for field in fields) or not all(is_image(field.ty) for field in fields):
        return None
    return relax.op.concat([rewriter.last(field) for field in fields], AXIS[int(call.attrs.axis) % 4])


def _reshape(rewriter: Rewriter, call: Any) -> Any:
    source = call.args[0]
    # With a single pixel both layouts are the same bytes, as behind a global pool.
    if rewriter.is_last(source) and extents(source.ty)[2:] == (1, 1) and not is_image(call.ty):
        return relax.op.reshape(rewriter.last(source), call.args[1])
    return _channel_shuffle(rewriter, call)


def _channel_shuffle(rewriter: Rewriter, call: Any) -> Any:
    """Return a reshape merging split and transposed channel groups."""
    transpose = rewriter.producer(call.args[0], "permute_dims")
    split = None if transpose is None else rewriter.producer(transpose.args[0], "reshape")
    if transpose is None or split is None or not is_image(call.ty) or transpose.attrs.axes is None:
        return None
    # The order in which ShuffleNet exchanges groups and the channels in them.
    if [int(axis) for axis in transpose.attrs.axes] != [0, 2, 1, 3, 4]:
        return None
    source = split.args[0]
    if not rewriter.is_last(source) or extents(call.ty) != extents(source.ty):
        return None
    batch, groups, size, height, width = extents(split.ty)
    if extents(source.ty) != (batch, groups * size, height, width):
        return None
    parts = rewriter.builder.emit(relax.op.reshape(rewriter.last(source), (batch, height, width, groups, size)))
    parts = rewriter.builder.emit(relax.op.permute_dims(parts, (0, 1, 2, 4, 3)))
    return relax.op.reshape(parts, (batch, height, width, groups * size))
