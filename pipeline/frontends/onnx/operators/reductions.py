"""Reductions over axes from attributes, constants or frames."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from pipeline.frontends.onnx.operators.node_call import Converter, NodeCall, by_axis, integer, integers, scalar

Reduction = Callable[[NodeCall, Any, list[int], bool], Any]
"""Reduction of an expression over axes, kept as extents of 1 or not."""


def _reduce(reduction: Reduction, call: NodeCall) -> Any:
    data, axes = call.inputs[0], _axes(call)
    keeps_axes = bool(call.attributes.get("keepdims", 1))
    if axes is None:
        return _choose(call, reduction, keeps_axes=keeps_axes)
    if not axes and int(call.attributes.get("noop_with_empty_axes", 0)):
        # Nothing is summed, but each element is squared, or whatever comes before and behind the sum.
        data = relax.op.expand_dims(data, -1)
        return reduction(call, call.normal(data), [len(call.shape())], False)
    return reduction(call, data, axes or list(range(len(call.shape()))), keeps_axes)


def _axes(call: NodeCall) -> list[int] | None:
    """Return a node's constant axes ([] for all); None if computed."""
    if "axes" in call.attributes:
        return [int(axis) % len(call.shape()) for axis in call.attributes["axes"]]
    if call.input(1) is None or math.prod(call.shape(1)) == 0:
        return []
    values = call.values(1)
    return None if values is None else [int(axis) % len(call.shape()) for axis in values]


def _choose(call: NodeCall, reduction: Reduction, *, keeps_axes: bool) -> Any:
    """Return the reduction over computed axes. Among axes of the right extents, the frame chooses."""
    shape, data = call.shape(), call.inputs[0]
    candidates = list(_candidates(shape, call.result_shape(), keeps_axes=keeps_axes))
    if not candidates:
        raise ValueError("the shape that the model states for its result is that of no reduction")
    mask = by_axis(call, integers([1] * call.shape(1)[0]), call.inputs[1], [0] * len(shape))
    result: Any = None
    for axes in candidates:
        value = reduction(call, data, [axis for axis in range(len(shape)) if axis in axes or shape[axis] == 1], False)
        value = call.normal(relax.op.reshape(value, call.result_shape()))
        if result is None:
            result = value
            continue
        # Axes of one element do not matter.
        wide_axes = [axis for axis, extent in enumerate(shape) if extent > 1]
        chosen = relax.op.take(mask, integers(wide_axes), 0)
        expected = integers([int(axis in axes) for axis in wide_axes])
        # One element, not none: with a scalar, a fused reduction cannot be compiled.
        distance = relax.op.max(relax.op.abs(relax.op.subtract(chosen, expected)), 0, keepdims=True)
        is_chosen = relax.op.equal(distance, integer(0))
        result = call.normal(relax.op.where(is_chosen, value, result))
    return result


def _candidates(shape: Sequence[int], result: Sequence[int], *, keeps_axes: bool) -> Any:
    """Yield sets of axes whose reduction gives the result's extents."""
    long_axes = [axis for axis, extent in enumerate(shape) if extent != 1]
    extents = [extent for extent in result if extent != 1]
    for count in range(len(long_axes) + 1):
        for axes in itertools.combinations(long_axes, count):
            if keeps_axes:
                if [1 if axis in axes else extent for axis, extent in enumerate(shape)] == list(result):
                    yield axes
            elif [shape[axis] for axis in long_axes if axis not in axes] == extents:
                yield axes


def _plain(operator: Callable[..., Any]) -> Reduction:
    def reduce(call: NodeCall, data: Any, axes: list[int], keeps_axes: bool) -> Any:
        if call.dtype() == "bool":
            # A byte, for which there are comparisons.
            return relax.op.astype(operator(relax.op.astype(data, "uint8"), axes, keepdims=keeps_axes), "bool")
        return operator(data, axes, keepdims=keeps_axes)

    return reduce


def _in_float32(reduction: Reduction) -> Reduction:
    """Return a reduction with half-precision sums in single precision.

    The largest of a row of negative infinities is minus infinity, while TVM begins with the least finite number.
    """

    def reduce(call: NodeCall, data: Any, axes: list[int], keeps_axes: bool) -> Any:
        if call.dtype() not in ("float16", "bfloat16"):
            return reduction(call, data, axes, keeps_axes)
        wide_data = call.normal(relax.op.astype(data, "float32"))
        return relax.op.astype(reduction(call, wide_data, axes, keeps_axes), call.dtype())

    return reduce


def _mean(call: NodeCall, data: Any, axes: list[int], keeps_axes: bool) -> Any:
    if "int" not in call.dtype():
        return relax.op.mean(data, axes, keepdims=keeps_axes)
    count = math.prod(int(data.ty.shape[axis]) for axis in axes)
    return relax.op.divide(relax.op.sum(data, axes, keepdims=keeps_axes), scalar(count, data))


def _sum_of(function: Callable[[Any], Any]) -> Reduction:
    return lambda _, data, axes, keeps_axes: relax.op.sum(function(data), axes, keepdims=keeps_axes)


def _squares(data: Any) -> Any:
    return relax.op.multiply(data, data)


def _norm(call: NodeCall, data: Any, axes: list[int], keeps_axes: bool) -> Any:
    total = relax.op.sum(_squares(data), axes, keepdims=keeps_axes)
    if "int" not in call.dtype():
        return relax.op.sqrt(total)
    return relax.op.astype(relax.op.sqrt(relax.op.astype(total, "float64")), call.dtype())


def _logarithm_of_sum(_: NodeCall, data: Any, axes: list[int], keeps_axes: bool) -> Any:
    return relax.op.log(relax.op.sum(data, axes, keepdims=keeps_axes))


def _logarithm_of_exponentials(call: NodeCall, data: Any, axes: list[int], keeps_axes: bool) -> Any:
    # Less the largest, so that nothing overflows; an infinite one would make NaN of its difference with itself.
    largest = call.normal(relax.op.max(data, axes, keepdims=True))
    largest = call.normal(relax.op.where(relax.op.isinf(largest), scalar(0, data), largest))
    exponentials = relax.op.exp(relax.op.subtract(data, largest))
    total = relax.op.log(relax.op.sum(exponentials, axes, keepdims=True))
    result = call.normal(relax.op.add(total, largest))
    return result if keeps_axes else relax.op.squeeze(result, axes)


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceL1": _in_float32(_sum_of(relax.op.abs)),
    "ReduceL2": _in_float32(_norm),
    "ReduceLogSum": _in_float32(_logarithm_of_sum),
    "ReduceLogSumExp": _in_float32(_logarithm_of_exponentials),
    "ReduceMax": _in_float32(_plain(relax.op.max)),
    "ReduceMean": _in_float32(_mean),
    "ReduceMin": _in_float32(_plain(relax.op.min)),
    "ReduceProd": _plain(relax.op.prod),
    "ReduceSum": _in_float32(_plain(relax.op.sum)),
    "ReduceSumSquare": _in_float32(_sum_of(_squares)),
}


def _top(call: NodeCall) -> Any:
    """Return ``TopK`` of a computed count."""
    if not call.is_computed(1):
        return None
    axis = int(call.attributes.get("axis", -1)) % len(call.shape())
    largest = bool(call.attributes.get("largest", 1))
    return relax.op.topk(call.inputs[0], call.result_shape()[axis], axis, "both", largest, "int64")


def _accumulate(operator: Callable[..., Any], call: NodeCall) -> Any:
    """Return ``CumSum`` or ``CumProd``, maybe along a computed axis."""
    data, axis = call.inputs[0], call.values(1)
    rank = len(call.shape())
    if axis is not None:
        return _accumulate_along(call, operator, data, int(axis.reshape(())) % rank)
    result = _accumulate_along(call, operator, data, 0)
    number = relax.op.reshape(relax.op.astype(call.inputs[1], "int64"), [])
    for axis_number in range(1, rank):
        is_chosen = relax.op.equal(
            relax.op.floor_mod(number, relax.const(rank, "int64")), relax.const(axis_number, "int64")
        )
        value = _accumulate_along(call, operator, data, axis_number)
        result = call.normal(relax.op.where(is_chosen, value, result))
    return result


def _accumulate_along(call: NodeCall, operator: Callable[..., Any], data: Any, axis: int) -> Any:
    backwards = bool(call.attributes.get("reverse", 0))
    data = relax.op.flip(data, axis) if backwards else data
    result = operator(data, axis, call.dtype(), bool(call.attributes.get("exclusive", 0)))
    return call.normal(relax.op.flip(result, axis) if backwards else result)


CONVERTERS: dict[str, Converter] = {
    **{kind: functools.partial(_reduce, reduction) for kind, reduction in _REDUCTIONS.items()},
    "CumProd": functools.partial(_accumulate, relax.op.cumprod),
    "CumSum": functools.partial(_accumulate, relax.op.cumsum),
    "TopK": _top,
}
