"""NumPy equivalents of operators between weights and their users.

TVM folds every operator, but compiles each one for it: a tenth of a second, which is minutes on a large model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.model.passes import quantized
from pipeline.model.passes.bindings import array
from pipeline.model.requantization import Arrays, Requantization

Rule = Callable[[list[Any], Any], np.ndarray]
"""NumPy function of the arguments, constants as arrays, and the attributes."""


def evaluate(call: Any) -> np.ndarray | None:
    """Return a constant call's value, or None without a rule.

    The result is also None if NumPy refuses the call.
    """
    if (requantization := Requantization.of(call)) is not None:
        return np.asarray(requantization.compute(Arrays(requantization.axis), _value(call.args[1].fields[0])))
    if (rule := _RULES.get(call.op.name)) is None:
        return None
    try:
        return np.asarray(rule([_value(argument) for argument in call.args], call.attrs))
    except (IndexError, TypeError, ValueError):
        # Such as an index beside the array: TVM says what is wrong, or knows better.
        return None


def extents(shape: Any) -> tuple[int, ...]:
    """Return the numbers of a shape, or of another tuple."""
    return tuple(int(extent) for extent in shape)


def _value(argument: Any) -> Any:
    values = array(argument)
    return argument if values is None else values


def _axes(axis: Any) -> tuple[int, ...] | None:
    return None if axis is None else extents(axis)


def _divide(a: list[Any], _: Any) -> np.ndarray:
    if a[0].dtype.kind in "iu":
        raise TypeError("integers are cut off, where NumPy makes real numbers of them")
    return np.asarray(a[0] / a[1])


def _take(a: list[Any], attrs: Any) -> np.ndarray:
    # TVM does not check; a wrong index is left to it.
    mode: Any = {"clip": "clip", "wrap": "wrap"}.get(str(attrs.mode), "raise")
    indices = a[1] if isinstance(a[1], np.ndarray) else int(a[1])
    return np.asarray(np.take(a[0], indices, None if attrs.axis is None else int(attrs.axis), mode=mode))


def _strided_slice(a: list[Any], _: Any) -> np.ndarray:
    data, axes, begins, ends = a[0], *map(extents, a[1:4])
    strides = extents(a[4]) if len(a) > 4 else (1,) * len(axes)
    parts = [slice(None)] * data.ndim
    for axis, begin, end, stride in zip(axes, begins, ends, strides, strict=True):
        parts[axis] = slice(begin, end, stride)
    return np.asarray(data[tuple(parts)])


def _concat(a: list[Any], attrs: Any) -> np.ndarray:
    return np.concatenate([_value(field) for field in a[0].fields], int(attrs.axis))


def _pad(a: list[Any], attrs: Any) -> np.ndarray:
    if str(attrs.pad_mode) != "constant":
        raise ValueError("other modes are rare")
    widths = np.reshape(extents(attrs.pad_width), (-1, 2))
    return np.pad(a[0], widths, constant_values=attrs.pad_value)


def _sum(a: list[Any], attrs: Any) -> np.ndarray:
    # NumPy would make larger integers of small ones.
    return np.asarray(np.sum(a[0], _axes(attrs.axis), a[0].dtype, keepdims=bool(attrs.keepdims)))


_RULES: dict[str, Rule] = {
    "relax.add": lambda a, _: a[0] + a[1],
    "relax.subtract": lambda a, _: a[0] - a[1],
    "relax.multiply": lambda a, _: a[0] * a[1],
    "relax.divide": _divide,
    "relax.exp": lambda a, _: np.exp(a[0]),
    "relax.sqrt": lambda a, _: np.sqrt(a[0]),
    "relax.negative": lambda a, _: -a[0],
    "relax.left_shift": lambda a, _: np.left_shift(a[0], a[1]),
    "relax.right_shift": lambda a, _: np.right_shift(a[0], a[1]),
    "relax.sum": _sum,
    "relax.astype": lambda a, attrs: a[0].astype(str(attrs.dtype)),
    # TVM cannot compile one of infinities, as causal masks are made of.
    "relax.full": lambda a, attrs: np.full(extents(a[0]), a[1], str(attrs.dtype) if attrs.dtype else None),
    "relax.broadcast_to": lambda a, _: np.broadcast_to(a[0], extents(a[1])),
    "relax.reshape": lambda a, _: a[0].reshape(extents(a[1])),
    "relax.expand_dims": lambda a, attrs: np.expand_dims(a[0], _axes(attrs.axis) or ()),
    "relax.squeeze": lambda a, attrs: np.squeeze(a[0], _axes(attrs.axis)),
    "relax.take": _take,
    "relax.strided_slice": _strided_slice,
    "relax.concat": _concat,
    "relax.nn.pad": _pad,
    "relax.isnan": lambda a, _: np.isnan(a[0]),
    "relax.less": lambda a, _: a[0] < a[1],
    "relax.where": lambda a, _: np.asarray(np.where(a[0], a[1], a[2])),
    "relax.permute_dims": lambda a, attrs: np.transpose(a[0], _axes(attrs.axes)),
    "relax.dequantize": lambda a, attrs: quantized.dequantize_values(a[0], a[1], a[2], attrs.axis).astype(
        attrs.out_dtype
    ),
}
