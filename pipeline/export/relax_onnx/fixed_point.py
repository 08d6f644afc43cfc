"""Integers times real factors, as quantised models compute them: the factor behind shifts and roundings.

Exact in whole numbers, such a product takes ten operators, some of 64 bits, which few runtimes compute so wide.  What
is recognised here is written as what it approximates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from tvm import relax

from pipeline.export.relax_onnx.operands import dtype
from pipeline.model.passes.bindings import array, calls

_FRACTION_BITS = 31


class Scaled(NamedTuple):
    """A tensor times a factor, or times one for each place along its last axis."""

    source: Any
    factor: np.ndarray


class Stored(NamedTuple):
    """A tensor with a zero point, within bounds."""

    source: Any
    zero: int
    low: int
    high: int


class Definitions:
    """Expressions behind the variables of a function.

    Parameters
    ----------
    main : tvm.relax.Function
    """

    def __init__(self, main: Any) -> None:
        self._values = {binding.var: binding.value for block in main.body.blocks for binding in block.bindings}

    def call(self, expression: Any, *names: str) -> Any:
        """Return the call that makes an expression if it is one of these operators, else None."""
        value = self._values.get(expression) if isinstance(expression, relax.Var) else expression
        return value if calls(value, *names) else None

    def with_constant(self, expression: Any, name: str) -> tuple[Any, np.ndarray] | None:
        """Return the operands of an operator of which the second is a constant."""
        call = self.call(expression, name)
        if call is None or (values := array(call.args[1])) is None:
            return None
        return call.args[0], values

    def stored(self, expression: Any) -> Stored | None:
        """Return what an integer of few bits is made of: bounds around a sum with the zero point."""
        least = self.with_constant(expression, "minimum")
        most = self.with_constant(least[0], "maximum") if least else None
        if least is None or most is None or least[1].size > 1 or most[1].size > 1:
            return None
        source, zero = most[0], 0
        shifted = self.with_constant(source, "add")
        if shifted is not None and shifted[1].ndim == 0:
            source, zero = shifted[0], int(shifted[1])
        return Stored(source, zero, int(most[1].item()), int(least[1].item()))

    def scaled(self, expression: Any) -> Scaled | None:
        """Return an int32 number as what is multiplied, and by what."""
        return self._rounded_real(expression) or self._shifted(expression)

    def _rounded_real(self, expression: Any) -> Scaled | None:
        """Recognise a product of 64-bit real numbers that is rounded, halves away from zero."""
        cast = self.call(expression, "astype")
        choice = None if cast is None else self.call(cast.args[0], "where")
        up = None if choice is None else self.call(choice.args[2], "floor")
        half = None if up is None else self.with_constant(up.args[0], "add")
        product = None if half is None or half[1].size > 1 else self.with_constant(half[0], "multiply")
        source = None if product is None else self.call(product[0], "astype")
        if half is None or product is None or source is None or float(half[1]) != 0.5:
            return None
        return Scaled(source.args[0], product[1].astype(np.float64)) if dtype(source.args[0]) == "int32" else None

    def _shifted(self, expression: Any) -> Scaled | None:
        """Recognise a product in fixed point, and the division by a power of two behind it."""
        power = self._divided(expression)
        source, exponents = power if power is not None else (expression, np.zeros(()))
        cast = self.call(source, "astype")
        high = None if cast is None else self.with_constant(cast.args[0], "right_shift")
        rounded = None if high is None or (high[1] != _FRACTION_BITS).any() else self.with_constant(high[0], "add")
        product = None if rounded is None else self.with_constant(rounded[0], "multiply")
        wide = None if product is None else self.call(product[0], "astype")
        if product is None or rounded is None or wide is None or dtype(wide.args[0]) != "int32":
            return None
        if (rounded[1] != 1 << _FRACTION_BITS - 1).any():
            return None
        return Scaled(wide.args[0], product[1].astype(np.float64) * 2.0 ** (-_FRACTION_BITS - exponents))

    def _divided(self, expression: Any) -> tuple[Any, np.ndarray] | None:
        """Recognise a division by powers of two, halves away from zero, as `divide_by_power` of TFLite writes it."""
        choice = self.call(expression, "where")
        is_divided = None if choice is None else array(choice.args[0])
        if choice is not None and is_divided is None:
            return None
        halved = self.with_constant(expression if choice is None else choice.args[1], "right_shift")
        odd = None if halved is None or (halved[1] != 1).any() else self.with_constant(halved[0], "add")
        doubled = None if odd is None or (odd[1] != 1).any() else self.with_constant(odd[0], "right_shift")
        signed = None if doubled is None else self.call(doubled[0], "add")
        sign = None if signed is None else self.with_constant(signed.args[1], "right_shift")
        if doubled is None or signed is None or sign is None or sign[0] != signed.args[0] or (sign[1] != 31).any():
            return None
        exponents = doubled[1].astype(np.float64) + 1
        return signed.args[0], exponents if is_divided is None else np.where(is_divided, exponents, 0)
