"""Definitions: the expressions behind the variables of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.model.passes.bindings import array, calls, operands
from pipeline.model.requantization import Requantization


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
