"""Activations of quantised tensors as tables of all integers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator, TfliteTensor
from pipeline.frontends.tflite.operators.converter import Converter
from pipeline.frontends.tflite.operators.quantized_values import BYTES, object_to, scale_of, zero_of
from pipeline.model.passes.bindings import constant
from pipeline.model.requantization import Multiplier

op = relax.op

Table = Callable[[TfliteTensor, TfliteTensor], np.ndarray]
"""Maker of a table from input and output: an integer for each of the input's, from the lowest on."""


def look_up(importer: Any, operator: TfliteOperator, table: Table) -> Any:
    """Return an operator's result as its table has it."""
    source, output = operator.operands[0], operator.outputs[0]
    lowest = int(np.iinfo(source.dtype).min)
    index = op.astype(importer.value(source), "int32")
    entries = constant(table(source, output).astype(output.dtype))
    return op.take(entries, op.subtract(index, constant(np.int32(lowest))) if lowest else index, axis=0)


def _integers(tensor: TfliteTensor) -> np.ndarray:
    """Return all integers of a tensor's dtype, ascending."""
    limits = np.iinfo(tensor.dtype)
    return np.arange(limits.min, limits.max + 1, dtype=np.int64)


def round_away(values: np.ndarray) -> np.ndarray:
    """Round halves away from zero."""
    rounded: np.ndarray = np.copysign(np.floor(np.abs(values) + 0.5), values)
    return rounded


def real_table(source: TfliteTensor, output: TfliteTensor, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the table of a real function, in float32 like LiteRT."""
    numbers = scale_of(source) * (_integers(source) - zero_of(source)).astype(np.float32)
    with np.errstate(all="ignore"):
        results = round_away(function(numbers) * (np.float32(1) / scale_of(output)))
    limits = np.iinfo(output.dtype)
    table: np.ndarray = np.clip(results + zero_of(output), limits.min, limits.max)
    return table


def _logistic(numbers: np.ndarray) -> np.ndarray:
    values: np.ndarray = 1 / (1 + np.exp(-numbers))
    return values


def _elu(numbers: np.ndarray) -> np.ndarray:
    return np.where(numbers < 0, np.expm1(numbers), numbers)


# Entries of LiteRT's sigmoid that are one above the nearest number; nothing explains them.
_LARGER = [
    4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41, 43, 44, 45, 46, 49,
    50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255,
]  # fmt: skip
# Its positive half for 16 bits, in steps of 1/24, with 16 bits behind the point.
_SIGMOID = (round_away(65536 / (1 + np.exp(-np.arange(256) / 24))) + np.isin(np.arange(256), _LARGER)).astype(np.int64)


def wide_table(source: TfliteTensor, _output: TfliteTensor, *, tanh: bool) -> np.ndarray:
    """Return the 16-bit table of a sigmoid or tanh.

    A tanh is a sigmoid twice as steep.
    """
    multiplier, shift = _wide_multiplier(source, tanh=tanh)
    x = (_integers(source) * multiplier + ((1 << shift) >> 1)) >> shift
    bits = 8 if tanh else 9
    index = np.minimum(np.abs(x) >> bits, 254)
    fraction = np.abs(x) & ((1 << bits) - 1)
    curve = (_SIGMOID[index] << bits) + fraction * (_SIGMOID[index + 1] - _SIGMOID[index])
    saturated = np.abs(x) >> bits >= 255
    if tanh:
        curve = np.where(saturated, 0xFFFF << 8, curve)
        half, rounding = 1 << 23, 1 << 7
        return np.where(x >= 0, curve - half + rounding, -curve + half + rounding - 1) >> 8
    curve = np.where(saturated, 0x7FFF << 10, curve)
    return np.where(x >= 0, curve + (1 << 9), (1 << 25) - curve + (1 << 9) - 1) >> 10


def _wide_multiplier(source: TfliteTensor, *, tanh: bool) -> tuple[int, int]:
    """Return the factor to steps of 1 / (3 * 4096), and the shift."""
    fraction, exponent = math.frexp(float(scale_of(source)))
    left_shift = 12 + exponent - 1
    if fraction == 0.5 and left_shift in ((0, 1) if tanh else (0,)):
        return 3 << left_shift, 0
    multiplier, shift = float(scale_of(source)) * 4096 * 3, 0
    while multiplier <= 32767 / 2 and shift <= 30:
        multiplier, shift = multiplier * 2, shift + 1
    return int(multiplier), shift


def hard_swish_table(source: TfliteTensor, output: TfliteTensor) -> np.ndarray:
    """Return the table of ``HARD_SWISH`` in LiteRT's 16 bits."""
    hires_scale = np.float32(1 / 128) * scale_of(source)
    output_mantissa, output_exponent = _short_multiplier(hires_scale / scale_of(output))
    unit_mantissa, unit_exponent = _short_multiplier(hires_scale / np.float32(3 / 32768))
    x = (_integers(source) - zero_of(source)) << 7
    on_output_scale = _high_product(x, output_mantissa)
    # The input between -3 and 3 as a number between -1 and 1, with saturation.
    unit = _saturate(x << (unit_exponent - 1)) if unit_exponent > 0 else x
    unit = _high_product(unit, unit_mantissa)
    unit = _saturate(unit << 1) if unit_exponent > 0 else _divide_by_power(unit, -unit_exponent)
    share = (unit + (1 << 15)) >> 1
    product = share * on_output_scale
    # C's division cuts towards zero.
    product = np.sign(product) * (np.abs(product) >> 15)
    limits = np.iinfo(output.dtype)
    result = _divide_by_power(product, -output_exponent) + zero_of(output)
    table: np.ndarray = np.clip(result, limits.min, limits.max)
    return table


def _short_multiplier(factor: np.float32) -> tuple[int, int]:
    multiplier = Multiplier.of(factor)
    mantissa = int(multiplier.mantissa)
    short = 0x7FFF if mantissa >= (0x7FFF << 16) + (1 << 15) else (mantissa + (1 << 15)) >> 16
    return short, int(multiplier.shift)


def _saturate(values: np.ndarray) -> np.ndarray:
    bounded: np.ndarray = np.clip(values, -(1 << 15), (1 << 15) - 1)
    return bounded


def _high_product(values: np.ndarray, mantissa: int) -> np.ndarray:
    product: np.ndarray = (values * mantissa + (1 << 14)) >> 15
    return product


def _divide_by_power(values: np.ndarray, exponent: int) -> np.ndarray:
    """Divide, halves away from zero."""
    rounded: np.ndarray = np.sign(values) * ((np.abs(values) + ((1 << exponent) >> 1)) >> exponent)
    return rounded


def _object_to_table(dtypes: tuple[str, ...] = BYTES) -> Callable[[Any, TfliteOperator], str]:
    return lambda _importer, operator: object_to(operator, dtypes)


def _by_width(function: Callable[[np.ndarray], np.ndarray], *, tanh: bool) -> Converter:
    def table(source: TfliteTensor, output: TfliteTensor) -> np.ndarray:
        return (
            wide_table(source, output, tanh=tanh) if source.dtype == "int16" else real_table(source, output, function)
        )

    return Converter(functools.partial(look_up, table=table), _object_to_table((*BYTES, "int16")))


CONVERTERS: dict[str, Converter] = {
    "ELU": Converter(
        functools.partial(look_up, table=functools.partial(real_table, function=_elu)), _object_to_table(("int8",))
    ),
    "HARD_SWISH": Converter(functools.partial(look_up, table=hard_swish_table), _object_to_table()),
    "LOGISTIC": _by_width(_logistic, tanh=False),
    "TANH": _by_width(np.tanh, tanh=True),
}
