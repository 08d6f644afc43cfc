"""Interpolation of quantised images, as LiteRT's reference kernels round it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator
from pipeline.frontends.tflite.operators import rounding
from pipeline.frontends.tflite.operators.converter import Converter
from pipeline.frontends.tflite.operators.quantized_values import object_to
from pipeline.model.passes.bindings import constant

op = relax.op

_BITS = 10
"""Behind the point of places in signed images."""


class Neighbours(NamedTuple):
    """Neighbours of each result, and its distance from the first."""

    first: np.ndarray
    second: np.ndarray
    distance: np.ndarray


def bilinear(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``RESIZE_BILINEAR``: unsigned bytes in reals, signed in integers."""
    data, output = operator.operands[0], operator.outputs[0]
    is_unsigned = output.dtype == "uint8"
    find = _real_neighbours if is_unsigned else _whole_neighbours
    options = operator.options
    rows, columns = (
        find(data.shape[axis], output.shape[axis], align=options.AlignCorners(), centers=options.HalfPixelCenters())
        for axis in (1, 2)
    )
    image = importer.value(data)
    return _interpolate_reals(image, rows, columns) if is_unsigned else _interpolate(importer.bb, image, rows, columns)


def _real_neighbours(extent: int, results: int, *, align: bool, centers: bool) -> Neighbours:
    scale = np.float32(extent) / np.float32(results)
    if align and results > 1:
        scale = np.float32(extent - 1) / np.float32(results - 1)
    positions = np.arange(results).astype(np.float32)
    scaled = (positions + np.float32(0.5)) * scale - np.float32(0.5) if centers else positions * scale
    first = np.maximum(np.floor(scaled), 0).astype(np.int64)
    second = np.minimum(np.ceil(scaled), extent - 1).astype(np.int64)
    return Neighbours(first, second, (scaled - first.astype(np.float32)).astype(np.float32))


def _whole_neighbours(extent: int, results: int, *, align: bool, centers: bool) -> Neighbours:
    scale = ((extent << _BITS) + results // 2) // results
    if align and results > 1:
        scale = (((extent - 1) << _BITS) + (results - 1) // 2) // (results - 1)
    scaled = np.arange(results) * scale
    if centers:
        scaled = scaled + scale // 2 - (1 << (_BITS - 1))
    # C's division cuts towards zero, which matters in front of the first place only.
    first = np.maximum(np.trunc(scaled / (1 << _BITS)), 0).astype(np.int64)
    second = np.minimum(np.trunc((scaled + (1 << _BITS) - 1) / (1 << _BITS)), extent - 1).astype(np.int64)
    return Neighbours(first, second, scaled - (first << _BITS))


def _corners(image: Any, rows: Neighbours, columns: Neighbours) -> list[Any]:
    """Return the four neighbours: above left, below left, above right, below right."""
    return [
        op.take(op.take(image, constant(row), axis=1), constant(column), axis=2)
        for column in (columns.first, columns.second)
        for row in (rows.first, rows.second)
    ]


def _interpolate_reals(image: Any, rows: Neighbours, columns: Neighbours) -> Any:
    down, right = rows.distance[:, None, None], columns.distance[None, :, None]
    up, from_left = np.float32(1) - down, np.float32(1) - right
    factors = ((up, from_left), (down, from_left), (up, right), (down, right))
    total: Any = None
    for corner, (vertical, horizontal) in zip(_corners(image, rows, columns), factors, strict=True):
        term = op.multiply(op.multiply(op.astype(corner, "float32"), constant(vertical)), constant(horizontal))
        term = rounding.rounded_product(term)
        total = term if total is None else op.add(total, term)
    return op.astype(op.astype(op.add(total, relax.const(0.5, "float32")), "int32"), "uint8")


def _interpolate(bb: Any, image: Any, rows: Neighbours, columns: Neighbours) -> Any:
    dtype = str(image.ty.dtype)
    # Of 16 bits, the sum has 36.
    wide = "int32" if dtype == "int8" else "int64"
    value = op.astype(image, wide)
    for axis, line in ((1, rows), (2, columns)):
        shape = (-1, 1, 1) if axis == 1 else (-1, 1)
        second = line.distance.reshape(shape).astype(wide)
        value = bb.emit(value)
        parts = (
            op.multiply(op.take(value, constant(positions), axis=axis), constant(factors))
            for positions, factors in ((line.first, (1 << _BITS) - second), (line.second, second))
        )
        value = op.add(*parts)
    value = bb.emit(value)
    # Halves away from zero: 2**19 is added to a positive sum, one less to others, and the shift rounds down.
    zero, half = constant(np.array(0, wide)), 1 << (2 * _BITS - 1)
    rounding = op.where(op.greater(value, zero), constant(np.array(half, wide)), constant(np.array(half - 1, wide)))
    return op.astype(op.right_shift(op.add(value, rounding), constant(np.array(2 * _BITS, wide))), dtype)


def _why_not(_importer: Any, operator: TfliteOperator) -> str:
    # LiteRT keeps the integers, also where the file states another scale for the result.
    return object_to(operator)


CONVERTERS: dict[str, Converter] = {"RESIZE_BILINEAR": Converter(bilinear, _why_not)}
"""Converters by kind."""
