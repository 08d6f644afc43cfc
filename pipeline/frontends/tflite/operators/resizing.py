"""Resizing of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.frontends.operators.resizing import ResizedAxis, Resizing, resize
from pipeline.frontends.tflite.flatbuffer import TfliteOperator
from pipeline.frontends.tflite.operators.converter import Converter, constant_operands, quantized
from pipeline.frontends.tflite.operators.movement import take_positions


def nearest(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``RESIZE_NEAREST_NEIGHBOR``; where corners are aligned, TFLite rounds halves up."""
    if not operator.options.AlignCorners():
        return importer.convert_resize_nearest_neighbor(operator.table)
    data, size = operator.operands
    positions = {}
    for axis, new_extent in enumerate(size.constant.tolist(), 1):
        extent = data.shape[axis]
        steps = np.arange(new_extent) * np.float32((extent - 1) / (new_extent - 1) if new_extent > 1 else 0)
        positions[axis] = np.minimum(np.floor(steps + 0.5).astype(np.int64), extent - 1)
    return take_positions(importer.value(data), positions)


def bilinear(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``RESIZE_BILINEAR`` of aligned corners, also in one pixel. TVM divides by zero there."""
    data, output = operator.operands[0], operator.outputs[0]
    axes = [ResizedAxis(axis, data.shape[axis], output.shape[axis], np.float32(1)) for axis in (1, 2)]
    return resize(importer.bb.emit, importer.value(data), axes, Resizing("align_corners", "linear"))


def _why_no_bilinear(importer: Any, operator: TfliteOperator) -> str:
    is_single = operator.options.AlignCorners() and 1 in operator.outputs[0].shape[1:3]
    return quantized(importer, operator) if is_single else "its corners are not aligned in one pixel"


CONVERTERS: dict[str, Converter] = {
    "RESIZE_BILINEAR": Converter(bilinear, _why_no_bilinear),
    "RESIZE_NEAREST_NEIGHBOR": Converter(nearest, constant_operands(1), approximates=True),
}
"""Converters by kind."""
