"""General rules: operators without a kernel of their own that work on either layout, given their operands in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.schedules.layout.values import AXIS, TO_LAST, extents, is_image, name_of, rebuilt

if TYPE_CHECKING:
    from pipeline.executor.schedules.layout.rewriter import Rewriter

# Element by element, so that any layout does; several operands are broadcast.
_ELEMENTWISE = {
    "abs", "add", "astype", "ceil", "clip", "cos", "divide", "erf", "exp", "floor", "log", "maximum", "minimum",
    "multiply", "negative", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.relu6", "nn.silu", "nn.softplus",
    "power", "round", "rsqrt", "sigmoid", "sign", "sin", "sqrt", "square", "subtract", "tanh",
}  # fmt: skip
_WINDOW = ("pool_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad")
_POOLS = {"nn.max_pool2d": _WINDOW, "nn.avg_pool2d": _WINDOW, "nn.adaptive_avg_pool2d": ("output_size",)}
_REDUCTIONS = {"mean", "sum", "max", "min"}


def rule(name: str) -> Callable[[Rewriter, Any], Any] | None:
    """Return the rule for an operator of that name, if there is one."""
    if name in _ELEMENTWISE:
        return _elementwise
    if name in _POOLS:
        return _pool
    if name in _REDUCTIONS:
        return _reduction
    return {"concat": _concat, "reshape": _reshape}.get(name)


def _elementwise(rewriter: Rewriter, call: Any) -> Any:
    tensors = [each for each in call.args if isinstance(each, relax.Var | GenericConst)]
    if not any(rewriter.is_last(each) for each in tensors) or not all(_fits(each) for each in tensors):
        return None
    return rebuilt(call, lambda each: _image(rewriter, each) if isinstance(each, relax.Var | GenericConst) else each)


def _fits(value: Any) -> bool:
    return is_image(value.ty) or (isinstance(value, GenericConst) and len(value.ty.shape) <= 4)


def _image(rewriter: Rewriter, value: Any) -> Any:
    """Return an operand as it is broadcast against an image with its channels last."""
    if is_image(value.ty):
        return rewriter.last(value)
    array = value.value.numpy()
    if array.ndim == 0 or array.size == 1:
        return relax.const(array.reshape(()))
    return relax.const(np.ascontiguousarray(array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(TO_LAST)))


def _pool(rewriter: Rewriter, call: Any) -> Any:
    if call.attrs.layout != "NCHW":
        return None
    attrs = {key: getattr(call.attrs, key) for key in _POOLS[name_of(call)]}
    made = getattr(relax.op.nn, name_of(call).removeprefix("nn."))
    return made(rewriter.last(call.args[0]), **attrs, layout="NHWC", out_layout="NHWC")


def _reduction(rewriter: Rewriter, call: Any) -> Any:
    source, axes = call.args[0], call.attrs.axis
    if not rewriter.is_last(source) or axes is None:
        return None
    axes = {int(axis) % 4 for axis in axes}
    if not call.attrs.keepdims and not ({2, 3} <= axes or 1 in axes):
        return None
    made = getattr(relax.op, name_of(call))
    return made(rewriter.last(source), sorted(AXIS[axis] for axis in axes), bool(call.attrs.keepdims))


def _concat(rewriter: Rewriter, call: Any) -> Any:
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
    if not any(rewriter.is_last(each) for each in fields) or not all(is_image(each.ty) for each in fields):
        return None
    return relax.op.concat([rewriter.last(each) for each in fields], AXIS[int(call.attrs.axis) % 4])


def _reshape(rewriter: Rewriter, call: Any) -> Any:
    source = call.args[0]
    if rewriter.is_last(source) and extents(source.ty)[2:] == (1, 1) and not is_image(call.ty):
        return relax.op.reshape(rewriter.last(source), call.args[1])
    return _shuffled(rewriter, call)


def _shuffled(rewriter: Rewriter, call: Any) -> Any:
    """Channels that are split in groups, transposed and joined again."""
    turned = rewriter.made_by(call.args[0], "permute_dims")
    split = None if turned is None else rewriter.made_by(turned.args[0], "reshape")
    if turned is None or split is None or not is_image(call.ty) or turned.attrs.axes is None:
        return None
    if [int(axis) for axis in turned.attrs.axes] != [0, 2, 1, 3, 4]:
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
