"""Definitions: the expressions behind the variables of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.model.passes.bindings import array, calls, operands
from pipeline.model.requantization import Requantization


class Definitions:
    """Expressions behind variables.

    Parameters
    ----------
    main : tvm.relax.Function
    """

    def __init__(self, main: Any) -> None:
        self._values = {binding.var: binding.value for block in main.body.blocks for binding in block.bindings}

    def value(self, expression: Any) -> Any:
        """Return what a variable stands for, or another expression as it is."""
        return self._values.get(expression) if isinstance(expression, relax.Var) else expression

    def call(self, expression: Any, *names: str) -> Any:
        """Return the call that makes an expression if it is one of these operators, else None."""
        value = self.value(expression)
        return value if calls(value, *names) else None

    def with_constant(self, expression: Any, name: str) -> tuple[Any, np.ndarray] | None:
        """Return the operands of an operator of which the second is a constant."""
        call = self.call(expression, name)
        if call is None or (values := array(call.args[1])) is None:
            return None
        return call.args[0], values

    def requantized(self, expression: Any) -> tuple[Requantization, Any] | None:
        """Return the requantization that makes an expression, and its operand."""
        value = self.value(expression)
        requantization = Requantization.of(value)
        return None if requantization is None else (requantization, value.args[1].fields[0])

    def nearest(self, expression: Any, holds: Callable[[Any], bool]) -> Any:
        """Return the nearest expression that one depends on, and that a condition holds for."""
        pending = [expression]
        # Those that are nearest come first.
        for candidate in pending:
            if holds(candidate):
                return candidate
            value = self.value(candidate)
            pending += [each for each in operands(value) if each is not value]
        raise LookupError("nothing is like that")
