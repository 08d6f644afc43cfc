"""Transposed convolutions, resizing of images, and pixel blocks moved to the batch and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.operators import blocks
from pipeline.frontends.operators.resizing import ResizedAxis, Resizing, resize
from pipeline.frontends.tflite.flatbuffer import TfliteOperator, TfliteTensor
from pipeline.frontends.tflite.operators.converter import Converter, constant_operands, quantized
from pipeline.frontends.tflite.operators.movement import take_positions


def transpose_convolution(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``TRANSPOSE_CONV`` with channels first, TVM's only layout.

    The output's extents are stated: what the convolution makes beyond them is cut off on both sides, and what it lacks
    is added at the end.
    """
    shape, weights, data, *bias = operator.operands
    options = operator.options
    strides = (options.StrideH(), options.StrideW())
    output_extents = [int(sizes) for sizes in shape.constant][1:3]
    pad_before, pad_after, output_padding = zip(
        *(
            transposed_padding(*sizes)
            for sizes in zip(data.shape[1:3], weights.shape[1:3], output_extents, strides, strict=True)
        ),
        strict=True,
    )
    convolution = relax.op.nn.conv2d_transpose(
        relax.op.permute_dims(importer.real_value(data), (0, 3, 1, 2)),
        # Weights are (outputs, height, width, inputs) in the file, and (inputs, outputs, height, width) in Relax.
        relax.op.permute_dims(importer.real_value(weights), (3, 0, 1, 2)),
        strides=strides,
        # TVM counts padding as what is cut off the result: top, left, bottom, right.
        padding=(*pad_before, *pad_after),
        output_padding=output_padding,
    )
    value = relax.op.permute_dims(convolution, (0, 2, 3, 1))
    if bias:
        value = relax.op.add(value, importer.real_value(bias[0]))
    value = importer.convert_fused_activation_function(value, options.FusedActivationFunction())
    return importer.store(value, operator.outputs[0])


def transposed_padding(extent: int, window: int, output_extent: int, stride: int) -> tuple[int, int, int]:
    """Return widths to cut before, cut after, and add after."""
    # A transposed convolution makes (extent - 1) * stride + window elements of each row.
    surplus = (extent - 1) * stride + window - output_extent
    # SAME padding of TensorFlow: where the surplus is odd, the end loses one more than the beginning.
    return max(surplus, 0) // 2, (max(surplus, 0) + 1) // 2, max(-surplus, 0)


def space_to_batch(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``SPACE_TO_BATCH_ND``, used for dilated convolutions."""
    data, sizes, pads = operator.operands
    return blocks.space_to_batch(importer.bb.emit, importer.value(data), *_numbers(sizes, pads))


def batch_to_space(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``BATCH_TO_SPACE_ND``, the reverse."""
    data, sizes, crops = operator.operands
    return blocks.batch_to_space(importer.bb.emit, importer.value(data), *_numbers(sizes, crops))


def _numbers(*tensors: TfliteTensor) -> list[Any]:
    return [tensor.constant.tolist() for tensor in tensors]


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
    "BATCH_TO_SPACE_ND": Converter(batch_to_space, constant_operands(1, 2), approximates=True),
    "SPACE_TO_BATCH_ND": Converter(space_to_batch, constant_operands(1, 2), approximates=True),
    "TRANSPOSE_CONV": Converter(transpose_convolution, constant_operands(0), approximates=True),
    "RESIZE_BILINEAR": Converter(bilinear, _why_no_bilinear),
    "RESIZE_NEAREST_NEIGHBOR": Converter(nearest, constant_operands(1), approximates=True),
}
