"""Conversions common to families of operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tvm import relax

from pipeline.frontends.relay.builder import BindingBuilder, axis, shape
from pipeline.frontends.relay.scalars import are_equal_shapes

Converter: TypeAlias = Callable[..., Any]


def unary(operator: Callable[..., Any], builder: BindingBuilder, _: object, x: Any) -> Any:
    """Convert to a Relax operator of equal operands, without attributes."""
    shape(x)
    return builder.emit(operator(x))


def binary(operator: Callable[..., Any], builder: BindingBuilder, _: object, x: Any, y: Any) -> Any:
    """Convert to a Relax operator of two operands."""
    # Asked for their errors: a tuple would end in TVM with a message about its own classes.
    shape(x), shape(y)
    return builder.emit(operator(x, y))


def reshape(builder: BindingBuilder, x: Any, extents: Sequence[Any]) -> Any:
    """Return `x` with other extents."""
    return x if are_equal_shapes(extents, shape(x)) else builder.emit(relax.op.reshape(x, tuple(extents)))


def transpose(builder: BindingBuilder, x: Any, order: Sequence[int]) -> Any:
    """Return `x` with its axes in another order."""
    return x if list(order) == sorted(order) else builder.emit(relax.op.permute_dims(x, list(order)))


def change_layout(builder: BindingBuilder, x: Any, have: str, want: str) -> Any:
    """Return `x` moved from layout `have` to `want`, a letter per axis."""
    return transpose(builder, x, [have.index(letter) for letter in want])


def align_with_axis(builder: BindingBuilder, vector: Any, x: Any, number: int) -> Any:
    """Return a vector reshaped along one axis of `x`."""
    # Broadcasting aligns shapes at their ends, so that axes of 1 go behind the vector only.
    trailing = len(shape(x)) - axis(x, number) - 1
    return reshape(builder, vector, (*shape(vector), *[1] * trailing)) if shape(vector) else vector


def cast(builder: BindingBuilder, x: Any, dtype: str) -> Any:
    """Return `x` with another dtype."""
    return x if str(x.ty.dtype) == dtype else builder.emit(relax.op.astype(x, dtype))
