"""Interpolation of quantised images, as LiteRT's reference kernels round it."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.frontends.tflite.flatbuffer import TfliteOperator
from pipeline.frontends.tflite.operators.converter import Converter
from pipeline.frontends.tflite.operators.quantized_values import object_to
from pipeline.model import byte_resizing
from pipeline.model.byte_resizing import BITS

Tables = tuple[np.ndarray, np.ndarray]
"""Both neighbours of each result, and the second's share."""


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
    return byte_resizing.resize(importer.bb, importer.value(data), rows, columns)


def _real_neighbours(extent: int, results: int, *, align: bool, centers: bool) -> Tables:
    scale = np.float32(extent) / np.float32(results)
    if align and results > 1:
        scale = np.float32(extent - 1) / np.float32(results - 1)
    positions = np.arange(results).astype(np.float32)
    scaled = (positions + np.float32(0.5)) * scale - np.float32(0.5) if centers else positions * scale
    first, second = np.maximum(np.floor(scaled), 0), np.minimum(np.ceil(scaled), extent - 1)
    return np.stack([first, second], 1), scaled - first


def _whole_neighbours(extent: int, results: int, *, align: bool, centers: bool) -> Tables:
    scale = ((extent << BITS) + results // 2) // results
    if align and results > 1:
        scale = (((extent - 1) << BITS) + (results - 1) // 2) // (results - 1)
    scaled = np.arange(results) * scale
    if centers:
        scaled = scaled + scale // 2 - (1 << (BITS - 1))
    # C's division cuts towards zero, which matters in front of the first place only.
    first = np.maximum(np.trunc(scaled / (1 << BITS)), 0)
    second = np.minimum(np.trunc((scaled + (1 << BITS) - 1) / (1 << BITS)), extent - 1)
    return np.stack([first, second], 1), scaled - first * (1 << BITS)


def _why_not(_importer: Any, operator: TfliteOperator) -> str:
    # LiteRT keeps the integers, also where the file states another scale for the result.
    return object_to(operator)


CONVERTERS: dict[str, Converter] = {"RESIZE_BILINEAR": Converter(bilinear, _why_not)}
