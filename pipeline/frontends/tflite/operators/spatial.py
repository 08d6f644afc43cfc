"""Transposed convolutions, and pixel blocks moved to the batch and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator
from pipeline.frontends.tflite.operators.converter import Converter, constant_operands


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
    """Return ``SPACE_TO_BATCH_ND``, found around dilated convolutions."""
    data, blocks, padding = operator.operands
    shape, size = data.shape, blocks.constant.tolist()
    # TVM calls a packed function that a bundle has not; reshape and transpose fuse with what is around them.
    pads = [[0, 0], *padding.constant.tolist(), *([[0, 0]] * (len(shape) - 1 - len(size)))]
    padded_extents = [extent + sum(pair) for extent, pair in zip(shape, pads, strict=True)]
    padded_image = relax.op.nn.pad(importer.value(data), [width for pair in pads for width in pair])
    block_extents = [
        part for extent, block in zip(padded_extents[1:], size, strict=False) for part in (extent // block, block)
    ]
    count, other_extents = len(size), padded_extents[1 + len(size) :]
    order = [
        *range(2, 2 * count + 1, 2),
        0,
        *range(1, 2 * count, 2),
        *range(2 * count + 1, 2 * count + 1 + len(other_extents)),
    ]
    blocked_image = relax.op.reshape(padded_image, [shape[0], *block_extents, *other_extents])
    return relax.op.reshape(relax.op.permute_dims(blocked_image, order), operator.outputs[0].shape)


def batch_to_space(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``BATCH_TO_SPACE_ND``, the reverse."""
    data, blocks, crops = operator.operands
    shape, size = data.shape, blocks.constant.tolist()
    count, batch = len(size), shape[0] // int(np.prod(size))
    other_axes = range(2 * count + 1, count + len(shape))
    order = [count, *(order_axis for axis in range(count) for order_axis in (count + 1 + axis, axis)), *other_axes]
    blocked_image = relax.op.permute_dims(relax.op.reshape(importer.value(data), [*size, batch, *shape[1:]]), order)
    merged_extents = [extent * block for extent, block in zip(shape[1:], size, strict=False)]
    merged_image = relax.op.reshape(blocked_image, [batch, *merged_extents, *shape[1 + count :]])
    first, last = zip(*crops.constant.tolist(), strict=True)
    axes = list(range(1, count + 1))
    return relax.op.strided_slice(
        merged_image, axes, first, [extent - end for extent, end in zip(merged_extents, last, strict=True)]
    )


CONVERTERS: dict[str, Converter] = {
    "BATCH_TO_SPACE_ND": Converter(batch_to_space, constant_operands(1, 2), approximates=True),
    "SPACE_TO_BATCH_ND": Converter(space_to_batch, constant_operands(1, 2), approximates=True),
    "TRANSPOSE_CONV": Converter(transpose_convolution, constant_operands(0), approximates=True),
}
"""Converters by kind."""
