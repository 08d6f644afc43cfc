"""What the families of operators share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tvm import relax

from pipeline.split.frontends.relay.builder import Builder, axis, shape

Converter: TypeAlias = Callable[..., Any]


def simple(operator: Callable[..., Any]) -> Converter:
    """Convert to a Relax operator with the same operands and no attributes."""

    def unary(builder: Builder, _: object, x: Any) -> Any:
        shape(x)
        return builder.emit(operator(x))

    return unary


def binary(operator: Callable[..., Any]) -> Converter:
    """Convert to a Relax operator of two operands."""

    def convert(builder: Builder, _: object, x: Any, y: Any) -> Any:
        shape(x), shape(y)
        return builder.emit(operator(x, y))

    return convert


def reshaped(builder: Builder, x: Any, extents: Sequence[int]) -> Any:
    """Return `x` with other extents."""
    return x if tuple(extents) == shape(x) else builder.emit(relax.op.reshape(x, tuple(extents)))


def transposed(builder: Builder, x: Any, order: Sequence[int]) -> Any:
    """Return `x` with its axes in another order."""
    return x if list(order) == sorted(order) else builder.emit(relax.op.permute_dims(x, list(order)))


def rearranged(builder: Builder, x: Any, have: str, want: str) -> Any:
    """Return `x` of the layout `have` in the layout `want`, both of one letter per axis."""
    return transposed(builder, x, [have.index(letter) for letter in want])


def along(builder: Builder, vector: Any, x: Any, number: int) -> Any:
    """Return a vector shaped so that it runs along one axis of `x` when the two are combined."""
    behind = len(shape(x)) - axis(x, number) - 1
    return reshaped(builder, vector, (*shape(vector), *[1] * behind)) if shape(vector) else vector


def cast(builder: Builder, x: Any, dtype: str) -> Any:
    """Return `x` with another dtype."""
    return x if str(x.ty.dtype) == dtype else builder.emit(relax.op.astype(x, dtype))
