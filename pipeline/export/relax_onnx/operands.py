"""Operands and attributes of a Relax call as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import relax

from pipeline.export.relax_onnx.tensors import Unwritable


def integers(values: Iterable[Any]) -> list[int]:
    """Return known integers."""
    return [int(number(value)) for value in (values.fields if isinstance(values, relax.Tuple) else values)]


def number(value: Any) -> Any:
    """Return an expression's number."""
    while hasattr(value, "value"):
        value = value.value
    if hasattr(value, "numpy"):
        value = value.numpy().item()
    if not isinstance(value, int | float | bool):
        raise Unwritable("an operand is not a number")
    return value


def shape(expression: Any) -> tuple[int, ...]:
    """Return the extents of a tensor or shape."""
    extents = expression.values if isinstance(expression, relax.ShapeExpr) else expression.ty.shape
    return tuple(int(extent) for extent in extents)


def dtype(expression: Any) -> str:
    """Return the dtype of a tensor."""
    return str(expression.ty.dtype)


def axes(values: Any, rank: int, *, backwards: bool = False) -> tuple[int, ...]:
    """Return axes from the front, sorted.

    All axes are meant where none is named, from the last on if `backwards`.
    """
    if values is None:
        return tuple(range(rank))[:: -1 if backwards else 1]
    listed = integers(values) if hasattr(values, "__iter__") else [int(values)]
    return tuple(axis % rank for axis in listed)


def is_given(text: Any) -> bool:
    """Check for an optional text, such as a dtype."""
    return text is not None and str(text) not in ("", "void", "None")
