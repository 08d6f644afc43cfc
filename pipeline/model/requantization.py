"""Requantization: integers on another scale, one kernel with its form.

Importers make it; kernels, the writer of ONNX and accelerators read it at the call.  None of them has to recognise the
shifts that it consists of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from tvm import te, tirx
from tvm.ir import Call

from pipeline.model.passes.bindings import constant, form_of, with_form

KIND = "Requantize"
"""Kind of its form."""

NONE, UPWARD, OUTWARD, TWICE, REAL = "none", "upward", "outward", "twice", "real"
"""Roundings: none, halves up, halves away from zero, up to 31 bits and then away from zero, and of a real product."""

FRACTION_BITS = 31
"""Bits of a mantissa behind its point."""

_NUMBERS = ("mantissa", "left", "right")
_LIMITS = np.iinfo(np.int32)


def multiplier_and_shift(factor: float) -> tuple[int, int]:
    """Return a positive factor's 31-bit mantissa and power of two.

    TVM and LiteRT find the same.
    """
    fraction, exponent = math.frexp(factor)
    # C rounds halves away from zero; the factor is positive.
    mantissa = math.floor(fraction * 2**FRACTION_BITS + 0.5)
    # Rounding may carry to 2**31, which 32 bits cannot hold: half of it, and twice the power.
    return (mantissa // 2, exponent + 1) if mantissa == 2**FRACTION_BITS else (mantissa, exponent)


class Multiplier(NamedTuple):
    """Real factors ``mantissa * 2**(shift - 31)`` in int64, one or per channel."""

    mantissa: np.ndarray
    shift: np.ndarray

    @staticmethod
    def of(factors: Any) -> Multiplier:
        """Return the nearest multiplier of nonnegative float64 factors."""
        array = np.asarray(factors, np.float64)
        pairs = [multiplier_and_shift(float(factor)) if factor else (0, 0) for factor in array.reshape(-1)]
        # All bits would be shifted out.
        pairs = [(0, 0) if shift < -FRACTION_BITS else (mantissa, shift) for mantissa, shift in pairs]
        return Multiplier(*(np.array(column, np.int64).reshape(array.shape) for column in zip(*pairs, strict=True)))

    def scale(self, rounding: str, axis: int = -1) -> Requantization:
        """Requantization to numbers of 32 bits."""
        # Shifts to the left before the product, those to the right behind it, so that no bit is lost early.
        fraction_bits = np.maximum(-self.shift, 0) + (0 if rounding == TWICE else FRACTION_BITS)
        mantissa, left, right = (
            tuple(numbers.reshape(-1).tolist()) for numbers in (self.mantissa, np.maximum(self.shift, 0), fraction_bits)
        )
        return Requantization(mantissa, left, right, rounding, axis)


@dataclass(frozen=True)
class Requantization:
    """Product of integers with a factor: rounded, offset, clipped."""

    mantissa: tuple[float, ...] = (1,)
    left: tuple[int, ...] = (0,)
    right: tuple[int, ...] = (0,)
    """Factors ``mantissa * 2**(left - right)``, one, or one for each place along `axis`. Numbers are shifted to the
    left before the product, and to the right behind it: by 31 bits more if they are rounded `TWICE`."""
    rounding: str = NONE
    axis: int = -1
    """Axis of the factors, counted from the end."""
    zero: int = 0
    low: int = int(_LIMITS.min)
    high: int = int(_LIMITS.max)
    """Zero point, and the bounds of the result with it."""
    dtype: str = "int32"
    """Type of the result."""
    operator: str = ""
    """Operator of ONNX that the numbers are the result of, if they are more than sums or products: ``"AveragePool"`` or
    ``"Softmax"``, which is over the last axis."""
    operand_scale: float = 1.0
    """Scale of a softmax's operand."""

    @staticmethod
    def of(call: Any) -> Requantization | None:
        """Return the requantization of a call, or None."""
        form = form_of(call)
        if form.get("kind") != KIND:
            return None
        numbers: dict[str, Any] = {name: tuple(form[name]) for name in _NUMBERS}
        return Requantization(**{name: value for name, value in form.items() if name != "kind"} | numbers)

    @property
    def factor(self) -> np.ndarray:
        """Real factor, one or per index of the axis."""
        mantissa, left, right = (np.array(getattr(self, name), np.float64) for name in _NUMBERS)
        return _merged(mantissa * 2.0 ** (left - right - (FRACTION_BITS if self.rounding == TWICE else 0)))

    @property
    def is_bounded(self) -> bool:
        """True if the bounds are tighter than int32's."""
        return (self.low, self.high) != (_LIMITS.min, _LIMITS.max)

    def call(self, builder: Any, x: Any, axis: int | None = None, name: str = "requantize") -> Any:
        """Return a kernel's call, maybe along another axis of channels."""
        if self == Requantization():
            return x
        # Importers nest calls.
        x = builder.emit(x) if isinstance(x, Call) else x
        values, form = self._values(), {"kind": KIND, **vars(self)}
        if axis is not None:
            form["axis"] = axis

        def requantize(x: Any, *channels: Any) -> Any:
            tensors = iter(channels)
            operands = [next(tensors) if value.ndim else value for value in values]
            return self._compute(_Tensors(form["axis"]), x, operands)

        operands = [constant(value) for value in values if value.ndim]
        return with_form(builder.call_te(requantize, x, *operands, primfunc_name_hint=name), form)

    def compute(self, language: Any, x: Any) -> Any:
        """Return the result in a language, such as `Arrays`."""
        return self._compute(language, x, self._values())

    def _values(self) -> list[np.ndarray]:
        """Constants of the arithmetic, scalar where channels agree."""
        mantissa, left, right = (_merged(np.array(getattr(self, name))) for name in _NUMBERS)
        if self.rounding == TWICE:
            # A shift to the left before the product is the same as one of the mantissa, unless it overflows.
            return [_merged(mantissa << left), np.maximum(right - 1, 0).astype(np.int32), np.asarray(right > 0)]
        if self.rounding in (UPWARD, OUTWARD):
            return [left, mantissa, np.asarray(np.int64(1) << (right - 1)), right]
        # One factor is an operand as well: with a number in its code, LLVM's kernel takes an eighth longer.
        return [np.array(self.mantissa, np.float64)] if self.rounding == REAL else []

    def _compute(self, language: Any, x: Any, values: Sequence[Any]) -> Any:
        scaled = _ROUNDINGS[self.rounding](language, x, *values)
        if not self.zero and not self.is_bounded:
            return scaled

        def store(number: Any, zero: Any, low: Any, high: Any) -> Any:
            shifted = number + zero if self.zero else number
            bounded = language.least(language.largest(shifted, low), high) if self.is_bounded else shifted
            return bounded.astype(self.dtype)

        return language.step(scaled, store, *(np.int32(bound) for bound in (self.zero, self.low, self.high)))


def _round_twice(language: Any, x: Any, *values: Any) -> Any:
    mantissa, before_last, is_divided = values

    def multiply(x: Any, mantissa: Any, half: Any) -> Any:
        return ((x.astype("int64") * mantissa + half) >> FRACTION_BITS).astype("int32")

    def divide(x: Any, bits: Any, *choice: Any) -> Any:
        # One less for negative numbers, so that their halves go down; the last bit apart, so that nothing overflows.
        rounded = (((x + (x >> FRACTION_BITS)) >> bits) + 1) >> 1
        return language.choose(choice[0], rounded, x) if choice else rounded

    product = language.step(x, multiply, mantissa, np.int64(1 << (FRACTION_BITS - 1)))
    # Of several channels some may not be divided.
    if is_divided.ndim:
        return language.step(product, divide, before_last, is_divided)
    return language.step(product, divide, before_last) if is_divided else product


def _round_upward(language: Any, x: Any, *values: Any) -> Any:
    def multiply(x: Any, left: Any, mantissa: Any, *rounding: Any) -> Any:
        half, right = rounding
        return ((_product(x, left, mantissa) + half) >> right).astype("int32")

    return language.step(x, multiply, *values)


def _round_outward(language: Any, x: Any, *values: Any) -> Any:
    left, mantissa, half, right = values

    def divide(x: Any, half: Any, right: Any) -> Any:
        # The shift rounds down; one less than a half keeps halves of negative numbers from going up.
        return ((x + language.choose(x < 0, half - 1, half)) >> right).astype("int32")

    return language.step(language.step(x, _product, left, mantissa), divide, half, right)


def _product(x: Any, left: Any, mantissa: Any) -> Any:
    return (x.astype("int64") << left) * mantissa


def _round_real(language: Any, x: Any, factor: Any) -> Any:
    def round_outward(x: Any, half: Any) -> Any:
        return language.choose(x < 0, language.ceil(x - half), language.floor(x + half)).astype("int32")

    product = language.step(x, lambda x, factor: x.astype("float64") * factor, factor)
    return language.step(product, round_outward, np.float64(0.5))


_ROUNDINGS: dict[str, Callable[..., Any]] = {
    NONE: lambda _, x: x,
    UPWARD: _round_upward,
    OUTWARD: _round_outward,
    TWICE: _round_twice,
    REAL: _round_real,
}


class Arrays:
    """Arithmetic of NumPy's arrays.

    A language has numbers with Python's operators and ``astype``, a few functions of them, and `step`. `axis` is that
    of channels, counted from the end.
    """

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self.choose, self.floor, self.ceil = np.where, np.floor, np.ceil
        self.least, self.largest = np.minimum, np.maximum

    def step(self, x: Any, function: Callable[..., Any], *values: Any) -> Any:
        """Apply a function to numbers and their channels' values, once."""
        return function(x, *(spread(channel_values, x.ndim, self._axis) for channel_values in values))


class _Tensors:
    """Arithmetic of TVM's tensors: a register per step in kernels."""

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self.choose, self.floor, self.ceil = tirx.Select, tirx.floor, tirx.ceil
        self.least, self.largest = tirx.Min, tirx.Max

    def step(self, x: Any, function: Callable[..., Any], *values: Any) -> Any:
        def element(*index: Any) -> Any:
            return function(x(*index), *(self._at(value, index) for value in values))

        return te.compute(x.shape, element, "requantize")

    def _at(self, value: Any, index: Sequence[Any]) -> Any:
        """Return a value for an element: its channel's, or the only one."""
        if not isinstance(value, te.Tensor):
            return tirx.const(value.item(), str(value.dtype))
        return value(0 if int(value.shape[0]) == 1 else index[self._axis])


def spread(values: Any, rank: int, axis: int) -> Any:
    """Return one number, or one per index, broadcast over other axes."""
    return values.reshape([-1 if number == axis else 1 for number in range(-rank, 0)]) if values.ndim else values


def _merged(values: np.ndarray) -> np.ndarray:
    """Return equal numbers as one without axes."""
    return values[0] if values.ndim and (values == values[0]).all() else values
