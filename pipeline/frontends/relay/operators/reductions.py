"""Reductions, searches and sorts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, axis, constant_values, dtype, shape
from pipeline.frontends.relay.operators.common import Converter, cast

op = relax.op


def axes_to_reduce(attrs: Attributes, x: Any) -> list[int]:
    """Return the removed axes of a reduction."""
    rank = len(shape(x))
    # No axes mean all of them, as an absent attribute does.
    axes = {axis(x, number) for number in attrs.integers("axis", [])} or set(range(rank))
    if attrs.flag("exclude"):
        axes = set(range(rank)) - axes
    return sorted(axes)


def _reduce(operator: Callable[..., Any], builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    axes, keepdims = axes_to_reduce(attrs, x), attrs.flag("keepdims")
    # "exclude" may leave no axis to reduce.
    return builder.emit(operator(x, axis=axes, keepdims=keepdims)) if axes else x


def _logical(operator: Callable[..., Any], builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    """Convert by small integers: Relax does not reduce booleans."""
    return cast(builder, _reduce(operator, builder, attrs, cast(builder, x, "int8")), "bool")


def _search(operator: Callable[..., Any], builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    axes, keepdims = axes_to_reduce(attrs, x), attrs.flag("keepdims")
    # Relax searches along one axis, or in everything.
    if len(axes) not in (1, len(shape(x))):
        raise ModelError(f"a search over the axes {axes} is not supported; one axis or all are")
    positions = operator(x, axis=axes[0] if len(axes) == 1 else None, keepdims=keepdims)
    # Relay's searches return int32, Relax's int64.
    return cast(builder, builder.emit(positions), "int32")


def _variance(builder: BindingBuilder, attrs: Attributes, x: Any, mean: Any) -> Any:
    axes, keepdims = axes_to_reduce(attrs, x), attrs.flag("keepdims")
    difference = builder.emit(op.subtract(x, mean))
    square = builder.emit(op.multiply(difference, difference))
    result = builder.emit(op.mean(square, axis=axes, keepdims=keepdims))
    if not attrs.flag("unbiased"):
        return result
    count = 1
    for number in axes:
        count *= shape(x)[number]
    # Bessel's correction; a single element has no variance to correct.
    return builder.emit(op.multiply(result, builder.constant(count / max(count - 1, 1), dtype(x))))


def _sort(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    number = axis(x, attrs.integer("axis", -1))
    return builder.emit(op.sort(x, axis=number, descending=not attrs.flag("is_ascend", True)))


def _argsort(builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    number = axis(x, attrs.integer("axis", -1))
    descending = not attrs.flag("is_ascend", True)
    return builder.emit(op.argsort(x, axis=number, descending=descending, dtype=attrs.dtype(default="int32")))


def _topk(builder: BindingBuilder, attrs: Attributes, x: Any, count: Any = None) -> Any:
    number = axis(x, attrs.integer("axis", -1))
    limit = (
        attrs.integer("k", 1) if count is None else int(constant_values(count, "the number of elements").reshape(-1)[0])
    )
    kind = attrs.choice("ret_type", "both", "values", "indices")
    # Relay takes k < 1 for all elements, and never returns more than there are.
    limit = shape(x)[number] if limit < 1 else min(limit, shape(x)[number])
    largest, index_type = not attrs.flag("is_ascend"), attrs.dtype(default="int32")
    return builder.emit(op.topk(x, k=limit, axis=number, ret_type=kind, largest=largest, dtype=index_type))


def _convert_scan(operator: Callable[..., Any], builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    number = axis(x, attrs.integer("axis")) if attrs.has("axis") else None
    return builder.emit(
        operator(x, axis=number, dtype=attrs.dtype(default=dtype(x)), exclusive=attrs.flag("exclusive"))
    )


TABLE: dict[str, Converter] = {
    "sum": functools.partial(_reduce, op.sum),
    "mean": functools.partial(_reduce, op.mean),
    "max": functools.partial(_reduce, op.max),
    "min": functools.partial(_reduce, op.min),
    "prod": functools.partial(_reduce, op.prod),
    "all": functools.partial(_logical, op.min),
    "any": functools.partial(_logical, op.max),
    "variance": _variance,
    "argmax": functools.partial(_search, op.argmax),
    "argmin": functools.partial(_search, op.argmin),
    "sort": _sort,
    "argsort": _argsort,
    "topk": _topk,
    "cumsum": functools.partial(_convert_scan, op.cumsum),
    "cumprod": functools.partial(_convert_scan, op.cumprod),
}
