"""Elementwise rescaling of bytes; halves round to even, per ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from pipeline.executor.kernels.tir.rounding import round_product
from pipeline.tvm import statements as tir

# 1.5 times 2 to the 23rd: also a negative number beside it leaves the exponent as it is.
_ONES = 12582912.0

_WHOLE, _WORD = 1 << 22, (1 << 15) - 256
"""Limits of whole numbers that are the lowest bits of their sum with `_ONES`: all bits, or 16 with a zero point."""

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


def quantize(builder: Any, data: Any, scale: QuantizationScale) -> Any:
    """Return float32 values as bytes."""
    # A division, as ONNX defines it: times the inverse would round some halves the other way.
    divisor = tirx.FloatImm("float32", scale.value)
    return _map(builder, "quantize", data, [], lambda value: _round(value / divisor, scale, scale.zero))


def dequantize(builder: Any, data: Any, scale: QuantizationScale) -> Any:
    """Return bytes as float32 values."""

    def number(value: Any) -> Any:
        difference = value.astype("int32") - tirx.IntImm("int32", scale.zero)
        return round_product(difference.astype("float32") * tirx.FloatImm("float32", scale.value))

    return _map(builder, "dequantize", data, [], number)


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
    # A rectified number is at least zero, which is the byte `zero`.
    low = max(scale.zero, _LIMITS[scale.dtype][0]) if rectified else _LIMITS[scale.dtype][0]

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


def _position(shape: Any, index: tuple[Any, ...]) -> list[Any]:
    """Return an element's indices in its broadcast operand."""
    return [tir.number(0) if int(extent) == 1 else position for extent, position in zip(shape, index, strict=True)]


def _map(builder: Any, name: str, data: Any, parameters: list[Any], step: Any) -> Any:
    """Call an elementwise function with parameters per channel."""

    def compute(tensor: Any, *channel: Any) -> Any:
        def element(*index: Any) -> Any:
            return step(tensor(*index), *(parameter(*_position(parameter.shape, index)) for parameter in channel))

        return te.compute(tensor.shape, element, name=name)

    return builder.call_te(compute, data, *parameters, primfunc_name_hint=name)
