"""Operators without tensor inputs: constants."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, constant_values, dtype, shape
from pipeline.frontends.relay.operators.common import Converter

op = relax.op

# Ranges are positions, of which the largest models have some thousands; these are 32 MB of int64.
_LONGEST_RANGE = 2**22


def _extents(attrs: Attributes, target: Any) -> tuple[int, ...]:
    # The dyn operators have the shape as an operand.
    if target is not None:
        return tuple(int(extent) for extent in constant_values(target, "the shape").reshape(-1))
    return tuple(attrs.integers("shape", []))


def _fill(value: int, builder: BindingBuilder, attrs: Attributes, target: Any = None) -> Any:
    return builder.fill(value, _extents(attrs, target), attrs.dtype(default="float32"))


def _full(builder: BindingBuilder, attrs: Attributes, value: Any, target: Any = None) -> Any:
    return builder.fill(_single(value), _extents(attrs, target), attrs.dtype(default=dtype(value)))


def _single(value: Any) -> Any:
    values = constant_values(value, "the value").reshape(-1)
    # One element of any rank: programs write scalars also as vectors of one.
    if len(values) != 1:
        raise ModelError(f"expected one value, found the shape {shape(value)}")
    return values[0]


def _fill_like(value: int, builder: BindingBuilder, _: Attributes, like: Any) -> Any:
    return builder.fill(value, shape(like), dtype(like))


def _full_like(builder: BindingBuilder, _: Attributes, like: Any, value: Any) -> Any:
    return builder.fill(_single(value), shape(like), dtype(like))


def _arange(builder: BindingBuilder, attrs: Attributes, start: Any, stop: Any, step: Any) -> Any:
    # TVM repeats the operands as attributes.
    attrs.get("start"), attrs.get("stop"), attrs.get("step")
    first, last, by = (float(_single(bound)) for bound in (start, stop, step))
    # NumPy's own rule for arange, but checked before it allocates.
    count = math.ceil((last - first) / by) if by and math.isfinite(first + last + by) else 0
    if not 1 <= count <= _LONGEST_RANGE:
        raise ModelError(f"a range from {first:g} to {last:g} by {by:g} is not supported")
    return builder.constant(first + by * np.arange(count), attrs.dtype(default="float32"))


def _shape_of(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    # Shapes are known, so that what is computed of them folds to constants.
    return builder.constant(shape(x), attrs.dtype(default="int32"))


def _size_of(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    return builder.constant(math.prod(shape(x)), attrs.dtype(default="int32"))


TABLE: dict[str, Converter] = {
    "zeros": functools.partial(_fill, 0),
    "ones": functools.partial(_fill, 1),
    "full": _full,
    "dyn.zeros": functools.partial(_fill, 0),
    "dyn.ones": functools.partial(_fill, 1),
    "dyn.full": _full,
    "zeros_like": functools.partial(_fill_like, 0),
    "ones_like": functools.partial(_fill_like, 1),
    "full_like": _full_like,
    "arange": _arange,
    "shape_of": _shape_of,
    "vm.shape_of": _shape_of,
    "ndarray_size": _size_of,
}
