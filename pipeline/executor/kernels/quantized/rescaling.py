"""Elementwise rescaling of bytes; halves round to even, per ONNX."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm_ffi
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from pipeline.executor.kernels.tir.rounding import add_products, round_product
from pipeline.tvm import statements as tir

# 1.5 times 2 to the 23rd: also a negative number beside it leaves the exponent as it is.
_ONES = 12582912.0

_WHOLE, _WORD = 1 << 22, (1 << 15) - 256
"""Limits of whole numbers that are the lowest bits of their sum with `_ONES`: all bits, or 16 with a zero point."""

# Products with smaller numbers might be denormal.
_SMALLEST = 1e-30

_LIMITS = {"uint8": (0, 255), "int8": (-128, 127)}


class QuantizationScale(NamedTuple):
    """``number = (byte - zero) * value``, for bytes of a dtype."""

    value: float
    zero: int
    dtype: str


def scale_of(call: Any) -> QuantizationScale | None:
    """Return the common scale of a byte quantisation, else None."""
    _, scale, zero = call.args
    dtype = str(call.ty.dtype if str(call.op.name) == "relax.quantize" else call.args[0].ty.dtype)
    if dtype not in _LIMITS or not isinstance(scale, GenericConst) or not isinstance(zero, GenericConst):
        return None
    values, zeros = scale.value.numpy(), zero.value.numpy()
    if values.size != 1 or zeros.size != 1 or str(values.dtype) != "float32":
        return None
    return QuantizationScale(float(values.reshape(-1)[0]), int(zeros.reshape(-1)[0]), dtype)


def quantize(builder: Any, data: Any, scale: QuantizationScale, *, fuses: bool) -> Any:
    """Return float32 values as bytes; by fused multiply-add where the processor has it."""
    quotient = _divide_by(scale.value, fuses=fuses)
    return _map(builder, "quantize", data, [], lambda value: _round(quotient(value), scale, scale.zero))


def add(  # noqa: PLR0913 - the last ones by keyword
    builder: Any,
    images: list[Any],
    sources: list[QuantizationScale],
    scale: QuantizationScale,
    *,
    rectified: bool,
    fuses: bool,
) -> Any:
    """Return two tensors of bytes added as numbers, quantised."""
    quotient, low = _divide_by(scale.value, fuses=fuses), _lowest(scale, rectified=rectified)
    if (shares := _exact_shares(sources, scale)) is not None:
        sources, quotient = shares, lambda total: total

    def byte(*values: Any) -> Any:
        first, second = (_number(value, source) for value, source in zip(values, sources, strict=True))
        return _round(quotient(first + second), scale, scale.zero, low)

    return _map(builder, "add", images[0], images[1:], byte)


def _exact_shares(sources: list[QuantizationScale], scale: QuantizationScale) -> list[QuantizationScale] | None:
    """Return the sources with scales divided already, if each sum of two bytes is rounded the same, else None."""
    first, second = (
        np.arange(low - source.zero, high - source.zero + 1).astype(np.float32)
        for source in sources
        for low, high in [_LIMITS[source.dtype]]
    )
    lowest, highest = (limit - scale.zero for limit in _LIMITS[scale.dtype])

    def add(factors: Sequence[Any], divisor: float) -> np.ndarray:
        total = np.add.outer(first * np.float32(factors[0]), second * np.float32(factors[1])) / np.float32(divisor)
        rounded: np.ndarray = np.clip(np.rint(total), lowest, highest)
        return rounded

    expected = add([source.value for source in sources], scale.value)
    quotients = [np.float32(source.value / scale.value) for source in sources]
    # Their neighbours, too: the few sums beside halves are seldom all on the right side.
    candidates = [[value, *(np.nextafter(value, np.float32(end)) for end in (0, np.inf))] for value in quotients]
    for factors in itertools.product(*candidates):
        if np.array_equal(add(factors, 1.0), expected):
            return [source._replace(value=float(factor)) for source, factor in zip(sources, factors, strict=True)]
    return None


def _divide_by(divisor: float, *, fuses: bool) -> Callable[[Any], Any]:
    """Return the function from a number to its quotient, or to one that is rounded to the same byte."""
    factors = _exact_inverse(divisor) if fuses else None
    if factors is None:
        # As ONNX defines it: times the inverse would round some halves the other way.
        return lambda value: value / tirx.FloatImm("float32", divisor)
    return lambda value: add_products(value, *factors)


def _exact_inverse(divisor: float) -> tuple[float, float] | None:
    """Return two parts of the inverse whose products have a sum that is rounded as the quotient is, else None.

    Both are steps that go up with the number, so that they are equal if they are around each half.
    """
    inverse = 1 / np.float64(divisor)
    # The second part has the sign of the first, so that of infinity there is no difference.
    high = np.float32(inverse)
    high = np.nextafter(high, np.float32(0)) if high >= inverse else high
    low = np.float32(inverse - high)
    halves = np.float32((np.arange(-256, 256) + 0.5) * divisor)
    numbers = (halves.view(np.int32)[:, None] + np.arange(-8, 9, dtype=np.int32)).view(np.float32)
    sums = (numbers * np.float64(high) + numbers * low).astype(np.float32)
    is_exact = np.array_equal(np.rint(sums), np.rint(numbers / np.float32(divisor)))
    return (float(high), float(low)) if is_exact and low > _SMALLEST else None


def dequantize(builder: Any, data: Any, scale: QuantizationScale) -> Any:
    """Return bytes as float32 values."""
    return _map(builder, "dequantize", data, [], lambda value: _number(value, scale))


def _number(value: Any, scale: QuantizationScale) -> Any:
    difference = value.astype("int32") - tirx.IntImm("int32", scale.zero)
    return round_product(difference.astype("float32") * tirx.FloatImm("float32", scale.value))


def change_scale(builder: Any, data: Any, source: QuantizationScale, target: QuantizationScale) -> Any:
    """Requantise bytes to another scale."""
    if source == target:
        return relax.op.astype(data, target.dtype)
    factor = _exact_factor(source, target)

    def byte(value: Any) -> Any:
        difference = (value.astype("int32") - tirx.IntImm("int32", source.zero)).astype("float32")
        if factor is not None:
            return _round(difference * tirx.FloatImm("float32", factor), target, target.zero)
        number = difference * tirx.FloatImm("float32", source.value)
        return _round(number / tirx.FloatImm("float32", target.value), target, target.zero)

    return _map(builder, "rescale", data, [], byte)


def _exact_factor(source: QuantizationScale, target: QuantizationScale) -> float | None:
    """Return a factor equal to multiply-then-divide on every byte, else None."""
    low, high = _LIMITS[source.dtype]
    differences = np.arange(low - source.zero, high - source.zero + 1).astype(np.float32)
    quotients = differences * np.float32(source.value) / np.float32(target.value)
    factor = np.float32(source.value / target.value)
    # There are 256 of them: what is equal for all needs no proof, and a division takes as long as ten products.
    return float(factor) if np.array_equal(np.rint(quotients), np.rint(differences * factor)) else None


def scale_sums(builder: Any, sums: Any, correction: np.ndarray, scales: np.ndarray, axis: int = -1) -> Any:
    """Return the numbers of product sums, channels along an axis."""

    def number(total: Any, bias: Any, factor: Any) -> Any:
        return round_product((total.astype("int32") + bias).astype("float32") * factor)

    return _map(builder, "scale", sums, _pair(sums, correction, scales, axis), number)


def integers(builder: Any, sums: Any, correction: np.ndarray) -> Any:
    """Return int32 product sums plus a number per channel."""
    if not np.any(correction):
        return sums if str(sums.ty.dtype) == "int32" else relax.op.astype(sums, "int32")
    channels, axes = int(sums.ty.shape[-1]), sums.ty.ndim
    values = np.broadcast_to(correction, (channels,)).reshape((1,) * (axes - 1) + (channels,)).astype("int32")
    return _map(builder, "correct", sums, [relax.const(values)], lambda total, addend: total.astype("int32") + addend)


def requantize(  # noqa: PLR0913 - the last ones by keyword
    builder: Any,
    sums: Any,
    linear: tuple[np.ndarray, np.ndarray],
    scale: QuantizationScale,
    *,
    rectified: bool,
    axis: int = -1,
    largest: np.ndarray | None = None,
    begin: Callable[[np.ndarray], Any] | None = None,
) -> Any:
    """Requantise sums per channel: ``round((sum + bias) * factor) + zero``.

    Sums of a small `largest` magnitude need no conversions.  Sums may `begin` with numbers for each channel.
    """
    low = _lowest(scale, rectified=rectified)
    bias, factors = linear
    is_small = largest is not None and bool(np.all((largest < _WHOLE) & (largest * factors < _WORD)))
    parameters = _pair(sums, bias + np.float32(_ONES).view(np.int32) * is_small, factors, axis)
    if begin is not None:
        sums = begin(parameters.pop(0).value.numpy().reshape(-1))
    ones = tirx.FloatImm("float32", _ONES)

    def byte(total: Any, *parameters: Any) -> Any:
        *addends, factor = parameters
        integer = sum(addends, total.astype("int32"))
        if not is_small:
            return _round(integer.astype("float32") * factor, scale, scale.zero, low)
        number = round_product((tirx.reinterpret("float32", integer) - ones) * factor)
        word = tirx.reinterpret("int32", number + ones).astype("int16") + tirx.IntImm("int16", scale.zero)
        limits = [tirx.IntImm("int16", limit) for limit in (low, _LIMITS[scale.dtype][1])]
        return tirx.Min(tirx.Max(word, limits[0]), limits[1]).astype(scale.dtype)

    return _map(builder, "requantize", sums, parameters, byte)


def as_unsigned(builder: Any, data: Any) -> Any:
    """Return signed bytes as unsigned ones, 128 larger."""
    return _map(
        builder, "unsign", data, [], lambda value: (value.astype("int32") + tirx.IntImm("int32", 128)).astype("uint8")
    )


def center(builder: Any, data: Any, zero: int) -> Any:
    """Return bytes less `zero` as integral float32."""
    return _map(
        builder, "center", data, [],
        lambda value: (value.astype("int32") - tirx.IntImm("int32", zero)).astype("float32"),
    )  # fmt: skip


def _lowest(scale: QuantizationScale, *, rectified: bool) -> int:
    # A rectified number is at least zero, which is the byte `zero`.
    return max(scale.zero, _LIMITS[scale.dtype][0]) if rectified else _LIMITS[scale.dtype][0]


def _round(value: Any, scale: QuantizationScale, zero: int, low: int | None = None) -> Any:
    lowest, highest = _LIMITS[scale.dtype]
    low = lowest if low is None else low
    # Limits first: they are whole numbers, and a conversion beyond int32's is not defined.
    value_in_range = tirx.Max(
        tirx.Min(value, tirx.FloatImm("float32", highest - zero)), tirx.FloatImm("float32", low - zero)
    )
    # Beside a number whose last bit counts ones there is room for whole numbers only: one addition rounds, halves to
    # even, and leaves the integer in the lowest bits.  It takes the place of a rounding and a conversion.
    rounded = tirx.reinterpret("int32", value_in_range + tirx.FloatImm("float32", _ONES))
    # Modulo 256, as the zero point is added.
    return rounded.astype(scale.dtype) + tirx.IntImm(scale.dtype, zero)


def _pair(sums: Any, bias: np.ndarray, factors: np.ndarray, axis: int) -> list[Any]:
    """Return bias and factor per channel as broadcast constants."""
    shape = [1] * sums.ty.ndim
    shape[axis] = channels = int(sums.ty.shape[axis])
    return [
        relax.const(np.broadcast_to(values, (channels,)).reshape(shape).astype(dtype))
        for values, dtype in ((bias, "int32"), (factors, "float32"))
    ]


def _position(shape: Any, whole: Any, index: tuple[Any, ...]) -> Sequence[Any]:
    """Return an element's indices in its operand, whose broadcast axes have one."""
    # At its own place, an operand may be overwritten.
    if tvm_ffi.structural_equal(shape, whole):
        return index
    return [tir.number(0) if int(extent) == 1 else position for extent, position in zip(shape, index, strict=True)]


def _map(builder: Any, name: str, data: Any, parameters: list[Any], step: Any) -> Any:
    """Call an elementwise function with parameters per channel."""

    def compute(tensor: Any, *channel: Any) -> Any:
        def element(*index: Any) -> Any:
            return step(
                tensor(*index), *(parameter(*_position(parameter.shape, tensor.shape, index)) for parameter in channel)
            )

        return te.compute(tensor.shape, element, name=name)

    return builder.call_te(compute, data, *parameters, primfunc_name_hint=name)
