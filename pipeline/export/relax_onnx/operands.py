"""Operands and attributes of a Relax call as plain values, and the expressions behind its variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.export.relax_onnx.tensors import Unwritable
from pipeline.model.passes.bindings import array, calls, operands
from pipeline.model.requantization import Requantization


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


class Definitions:
    """Expressions behind variables."""

    def __init__(self, main: Any) -> None:
        self._values = {binding.var: binding.value for block in main.body.blocks for binding in block.bindings}

    def value(self, expression: Any) -> Any:
        """Return a variable's value, or the expression itself."""
        return self._values.get(expression) if isinstance(expression, relax.Var) else expression

    def call(self, expression: Any, *names: str) -> Any:
        """Return the call behind an expression by operator, else None."""
        value = self.value(expression)
        return value if calls(value, *names) else None

    def with_constant(self, expression: Any, name: str) -> tuple[Any, np.ndarray] | None:
        """Return an operator's operands if the second is constant."""
        call = self.call(expression, name)
        if call is None or (values := array(call.args[1])) is None:
            return None
        return call.args[0], values

    def requantized(self, expression: Any) -> tuple[Requantization, Any] | None:
        """Return an expression's requantization with its operand."""
        value = self.value(expression)
        requantization = Requantization.of(value)
        return None if requantization is None else (requantization, value.args[1].fields[0])

    def nearest(self, expression: Any, holds: Callable[[Any], bool]) -> Any:
        """Return the nearest operand under a condition."""
        pending = [expression]
        # Those that are nearest come first.
        for candidate in pending:
            if holds(candidate):
                return candidate
            value = self.value(candidate)
            pending += [operand for operand in operands(value) if operand is not value]
        raise LookupError("nothing is like that")
