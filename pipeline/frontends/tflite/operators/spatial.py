"""Transposed convolutions, and pixel blocks moved to the batch and back."""

from __future__ import annotations

from typing import Any

from tvm import relax

from pipeline.frontends.operators import blocks
from pipeline.frontends.tflite.flatbuffer import TfliteOperator, TfliteTensor
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
    """Return ``SPACE_TO_BATCH_ND``, used for dilated convolutions."""
    data, sizes, pads = operator.operands
    return blocks.space_to_batch(importer.bb.emit, importer.value(data), *_numbers(sizes, pads))


def batch_to_space(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``BATCH_TO_SPACE_ND``, the reverse."""
    data, sizes, crops = operator.operands
    return blocks.batch_to_space(importer.bb.emit, importer.value(data), *_numbers(sizes, crops))


def _numbers(*tensors: TfliteTensor) -> list[Any]:
    return [tensor.constant.tolist() for tensor in tensors]


CONVERTERS: dict[str, Converter] = {
    "BATCH_TO_SPACE_ND": Converter(batch_to_space, constant_operands(1, 2), approximates=True),
    "SPACE_TO_BATCH_ND": Converter(space_to_batch, constant_operands(1, 2), approximates=True),
    "TRANSPOSE_CONV": Converter(transpose_convolution, constant_operands(0), approximates=True),
}
"""Converters by kind."""
