"""Rules for what works line by line: reductions, softmax, layer normalization."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.schedules import anchors
from pipeline.executor.schedules.layout.rewriter import Plain, Rewriter
from pipeline.executor.schedules.layout.values import AXIS, extents, is_static, name_of
from pipeline.executor.schedules.lines.extremes import DTYPES, LONGEST, Extreme
from pipeline.executor.schedules.lines.layer_norm import LayerNorm
from pipeline.executor.schedules.lines.lines import Lines
from pipeline.executor.schedules.lines.reductions import Reduction
from pipeline.executor.schedules.lines.softmax import Softmax


def reduction(rewriter: Rewriter, call: Any) -> Any:
    """Return the value of a sum, mean, product, maximum, minimum or variance."""
    kind = name_of(call)
    data, squared = _squared(rewriter, call.args[0]) if kind in ("sum", "mean") else (call.args[0], False)
    if not _fits(data, call):
        return None
    return _folded(rewriter, call, data, "reduction", lambda lines, keeps: Reduction(lines, kind, squared, keeps))


def extreme(rewriter: Rewriter, call: Any) -> Any:
    """Return the value of an ``argmax`` or ``argmin``."""
    data, kind, axis = call.args[0], name_of(call), call.attrs.axis
    if not isinstance(data, relax.Var) or not is_static(data, call) or str(data.ty.dtype) not in DTYPES:
        return None
    axes = _axes(None if axis is None else [axis], data.ty.ndim)
    if 0 in extents(data.ty) or math.prod(extents(data.ty)[each] for each in axes) > LONGEST:
        return None
    return _folded(rewriter, call, data, "extreme", lambda lines, keeps: Extreme(lines, kind, keeps))


def _folded(rewriter: Rewriter, call: Any, data: Any, rule: str, form: Callable[[Lines, bool], Any]) -> Any:
    """Return the stand-in of what makes one element of each line."""
    axis = call.attrs.axis
    axes = _axes([axis] if isinstance(axis, int) else axis, data.ty.ndim)
    keeps = bool(call.attrs.keepdims)
    # Without the axis of the channels, or with the pixels' axes gone, both layouts have the same order.
    last = rewriter.is_last(data) and (keeps or {2, 3} <= set(axes) or 1 in axes)
    # Places are counted in the model's order.
    last = last and (len(axes) == 1 or rule == "reduction")
    source, lines = _lines(rewriter, data, axes, last=last)
    if not axes or not source.ty.ndim:
        return None
    keeps = keeps or not lines.kept
    left = range(len(lines.shape)) if keeps else lines.kept
    shape = [1 if axis in lines.axes else lines.shape[axis] for axis in left]
    made = anchors.stand_in(rewriter.builder, rule, form(lines, keeps), [source], shape, str(call.ty.dtype))
    if call.ty.ndim != len(shape):
        return relax.op.reshape(rewriter.builder.emit(made), extents(call.ty))
    return made if last else Plain(made)


def _squared(rewriter: Rewriter, value: Any) -> tuple[Any, bool]:
    """Return what is multiplied by itself to make `value`, if anything is."""
    product = rewriter.made_by(value, "multiply")
    if product is not None and isinstance(product.args[0], relax.Var) and product.args[0].same_as(product.args[1]):
        return product.args[0], True
    power = rewriter.made_by(value, "power")
    if power is not None and isinstance(power.args[0], relax.Var) and _single(power.args[1]) == 2:
        return power.args[0], True
    return value, False


def softmax(rewriter: Rewriter, call: Any) -> Any:
    """Return the value of a softmax, or of its logarithm."""
    data = call.args[0]
    if not _fits(data, call):
        return None
    last = rewriter.is_last(data)
    source, lines = _lines(rewriter, data, _axes([call.attrs.axis], data.ty.ndim), last=last)
    detail = Softmax(lines, name_of(call) == "nn.log_softmax")
    made = anchors.stand_in(rewriter.builder, "softmax", detail, [source], lines.shape)
    return made if last else Plain(made)


def layer_norm(rewriter: Rewriter, call: Any) -> Any:
    """Return the value of a layer normalization."""
    data, *parameters = call.args
    attrs = call.attrs
    if not _fits(data, call, *parameters):
        return None
    axes = _axes(attrs.axes, data.ty.ndim)
    scaled, shifted = bool(attrs.scale), bool(attrs.center)
    wanted = [each for each, used in zip(parameters, (scaled, shifted), strict=True) if used]
    return _normalized(rewriter, data, axes, float(attrs.epsilon), (scaled, shifted), wanted)


def standardized(rewriter: Rewriter, call: Any) -> Any:
    """Find a layer normalization that was taken apart, by the division that ends it: (x - mean) / sqrt(variance)."""
    root = rewriter.made_by(call.args[1], "sqrt")
    total = None if root is None else rewriter.made_by(root.args[0], "add")
    difference = rewriter.made_by(call.args[0], "subtract")
    if total is None or difference is None or (epsilon := _single(total.args[1])) is None:
        return None
    data, mean = difference.args[0], rewriter.made_by(difference.args[1], "mean")
    variance = _variance_of(rewriter, total.args[0], call.args[0])
    if mean is None or variance is None or not isinstance(data, relax.Var) or not mean.args[0].same_as(data):
        return None
    if not _fits(data, call) or not all(bool(each.attrs.keepdims) for each in (mean, variance)):
        return None
    axes = _axes(mean.attrs.axis, data.ty.ndim)
    of_data = name_of(variance) == "mean" or variance.args[0].same_as(data)
    if axes != _axes(variance.attrs.axis, data.ty.ndim) or not of_data:
        return None
    return _normalized(rewriter, data, axes, epsilon, (False, False), [])


def _variance_of(rewriter: Rewriter, value: Any, difference: Any) -> Any:
    """Return the call that makes a variance: as one operator, or as the mean of the squares of `difference`."""
    whole = rewriter.made_by(value, "variance")
    mean = rewriter.made_by(value, "mean")
    if mean is None:
        return whole
    source, squared = _squared(rewriter, mean.args[0])
    return mean if squared and _is_same(rewriter, source, difference) else None


def _is_same(rewriter: Rewriter, one: Any, other: Any) -> bool:
    """Whether two values are one, or the same difference."""
    if one.same_as(other):
        return True
    first, second = (rewriter.made_by(each, "subtract") for each in (one, other))
    return (
        first is not None
        and second is not None
        and all(a.same_as(b) for a, b in zip(first.args, second.args, strict=True))
    )


def _normalized(  # noqa: PLR0913, PLR0917
    rewriter: Rewriter, data: Any, axes: tuple[int, ...], epsilon: float, used: tuple[bool, bool], wanted: list[Any]
) -> Any:
    # A parameter for each element of several axes has those in the model's order.
    last = rewriter.is_last(data) and (len(axes) == 1 or not wanted)
    source, lines = _lines(rewriter, data, axes, last=last)
    if len(lines.runs) != 1 or any(math.prod(extents(each.ty)) != lines.length for each in wanted):
        return None
    operands = [source, *(rewriter.plain(each) for each in wanted)]
    detail = LayerNorm(lines, epsilon, *used)
    made = anchors.stand_in(rewriter.builder, "layer_norm", detail, operands, lines.shape)
    return made if last else Plain(made)


def _lines(rewriter: Rewriter, data: Any, axes: Sequence[int], *, last: bool) -> tuple[Any, Lines]:
    source = rewriter.last(data) if last else rewriter.plain(data)
    return source, Lines(extents(source.ty), tuple(sorted(AXIS[axis] for axis in axes) if last else axes))


def _axes(axes: Any, ndim: int) -> tuple[int, ...]:
    return tuple(range(ndim)) if axes is None else tuple(sorted({int(axis) % ndim for axis in axes}))


def _fits(*values: Any) -> bool:
    return (
        is_static(*values)
        and all(str(each.ty.dtype) == "float32" for each in values)
        and 0 not in [extent for each in values for extent in extents(each.ty)]
        and isinstance(values[0], relax.Var)
    )


def _single(value: Any) -> float | None:
    array = np.asarray(value.value.numpy()) if isinstance(value, GenericConst) else None
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None
