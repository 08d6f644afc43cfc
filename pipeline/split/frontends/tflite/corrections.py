"""TFLite operators that TVM's importer makes something of that cannot be built, or gets wrong: ours instead."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import relax

from pipeline.split.passes.bindings import constant


def transpose_convolution(importer: Any, operator: Any) -> Any:
    """Return ``TRANSPOSE_CONV`` with channels first, the only layout for which TVM has one.

    The output's extents are stated: what the convolution makes beyond them is cut off on both sides, and what it lacks
    is added at the end.
    """
    # In the function, as TVM does: the package has a module for each of some hundred classes.
    from tflite.TransposeConvOptions import TransposeConvOptions

    options = TransposeConvOptions()
    options.Init(operator.BuiltinOptions().Bytes, operator.BuiltinOptions().Pos)
    shape, weights, data, *bias = importer.get_input_tensors(operator)
    (result,) = importer.get_output_tensors(operator)
    strides = (options.StrideH(), options.StrideW())
    output_extents = [int(sizes) for sizes in importer.get_tensor_value(shape)][1:3]
    pad_before, pad_after, output_padding = zip(
        *(
            _padding(*sizes)
            for sizes in zip(
                _extents(importer, data), _extents(importer, weights), output_extents, strides, strict=True
            )
        ),
        strict=True,
    )
    convolution = relax.op.nn.conv2d_transpose(
        relax.op.permute_dims(_floats(importer, data), (0, 3, 1, 2)),
        # Weights are (outputs, height, width, inputs) in the file, and (inputs, outputs, height, width) in Relax.
        relax.op.permute_dims(_floats(importer, weights), (3, 0, 1, 2)),
        strides=strides,
        # TVM counts padding as what is cut off the result: top, left, bottom, right.
        padding=(*pad_before, *pad_after),
        output_padding=output_padding,
    )
    value = relax.op.permute_dims(convolution, (0, 2, 3, 1))
    if bias:
        value = relax.op.add(value, _floats(importer, bias[0]))
    value = importer.convert_fused_activation_function(value, options.FusedActivationFunction())
    return importer.quantize(value, result) if result.qnn_params else value


def _extents(importer: Any, tensor: Any) -> list[int]:
    return [int(each) for each in importer.get_tensor_shape(tensor)][1:3]


def _padding(extent: int, window: int, output_extent: int, stride: int) -> tuple[int, int, int]:
    """Return the widths to cut off before and behind, and to add behind, along one axis."""
    # A transposed convolution makes (extent - 1) * stride + window elements of each row.
    surplus = (extent - 1) * stride + window - output_extent
    # SAME padding of TensorFlow: where the surplus is odd, the end loses one more than the beginning.
    return max(surplus, 0) // 2, (max(surplus, 0) + 1) // 2, max(-surplus, 0)


def _floats(importer: Any, tensor: Any) -> Any:
    value = importer.get_tensor_expr(tensor)
    # Through real numbers: TVM has no whole ones for these, and refuses a quantized BATCH_MATMUL.
    return importer.dequantize(value, tensor) if tensor.qnn_params else value


def _tensors(importer: Any, operator: Any) -> tuple[list[Any], Any]:
    (result,) = importer.get_output_tensors(operator)
    return importer.get_input_tensors(operator), result


def _numbers(importer: Any, tensor: Any) -> np.ndarray:
    return np.asarray(importer.get_tensor_value(tensor))


def extreme_place(importer: Any, operator: Any, function: Any) -> Any:
    """Return ``ARG_MAX`` or ``ARG_MIN`` in the dtype that the model states."""
    (data, axis), result = _tensors(importer, operator)
    # TVM returns int64 whatever the model states.
    positions = function(importer.get_tensor_expr(data), int(_numbers(importer, axis)))
    return relax.op.astype(positions, importer.get_tensor_type_str(result.tensor.Type()))


def matrix_product(importer: Any, operator: Any) -> Any:
    """Return ``BATCH_MATMUL``, of which either operand may be a constant."""
    from tflite.BatchMatMulOptions import BatchMatMulOptions

    options = BatchMatMulOptions()
    options.Init(operator.BuiltinOptions().Bytes, operator.BuiltinOptions().Pos)
    inputs, result = _tensors(importer, operator)
    operands = []
    # TVM's converter reshapes by way of get_expr, which a constant operand has not.
    for tensor, is_transposed in zip(inputs, (options.AdjX(), options.AdjY()), strict=True):
        order = list(range(len(importer.get_tensor_shape(tensor))))
        operand = _floats(importer, tensor)
        operands.append(
            relax.op.permute_dims(operand, [*order[:-2], order[-1], order[-2]]) if is_transposed else operand
        )
    product = relax.op.matmul(*operands)
    return importer.quantize(product, result) if result.qnn_params else product


def expand_dims(importer: Any, operator: Any) -> Any:
    """Return ``EXPAND_DIMS`` as a reshape."""
    # TVM's converter gives its own operator one argument too many; the result's shape says all.
    (data, *_), result = _tensors(importer, operator)
    return relax.op.reshape(importer.get_tensor_expr(data), _shape(importer, result))


def dense(importer: Any, operator: Any) -> Any:
    """Return ``FULLY_CONNECTED`` in the shape that the model states; TVM keeps that of the input."""
    # Its batch may be several axes, if the option KeepNumDims is set.
    _, result = _tensors(importer, operator)
    return relax.op.reshape(importer.convert_fully_connected(operator), _shape(importer, result))


def _shape(importer: Any, tensor: Any) -> list[int]:
    return [int(each) for each in importer.get_tensor_shape(tensor)]


def mirror_pad(importer: Any, operator: Any) -> Any:
    """Return ``MIRROR_PAD``; what is added are places of the input."""
    from tflite.MirrorPadOptions import MirrorPadOptions

    options = MirrorPadOptions()
    options.Init(operator.BuiltinOptions().Bytes, operator.BuiltinOptions().Pos)
    (data, widths), _ = _tensors(importer, operator)
    # The numbers of the schema's enumeration MirrorPadMode; TVM refuses the second.
    mode: Any = ("reflect", "symmetric")[options.Mode()]
    margins = [[int(width) for width in pair] for pair in _numbers(importer, widths)]
    extents = _shape(importer, data)
    positions = {
        axis: np.pad(np.arange(extents[axis]), pair, mode=mode) for axis, pair in enumerate(margins) if any(pair)
    }
    return _take_positions(importer.get_tensor_expr(data), positions)


def nearest(importer: Any, operator: Any) -> Any:
    """Return ``RESIZE_NEAREST_NEIGHBOR``; where corners are aligned, TFLite rounds halves up."""
    from tflite.ResizeNearestNeighborOptions import ResizeNearestNeighborOptions

    options = ResizeNearestNeighborOptions()
    options.Init(operator.BuiltinOptions().Bytes, operator.BuiltinOptions().Pos)
    if not options.AlignCorners():
        return importer.convert_resize_nearest_neighbor(operator)
    (data, size), _ = _tensors(importer, operator)
    positions = {}
    for axis, new_extent in enumerate(_numbers(importer, size).tolist(), 1):
        extent = _shape(importer, data)[axis]
        steps = np.arange(new_extent) * np.float32((extent - 1) / (new_extent - 1) if new_extent > 1 else 0)
        positions[axis] = np.minimum(np.floor(steps + 0.5).astype(np.int64), extent - 1)
    return _take_positions(importer.get_tensor_expr(data), positions)


def _take_positions(data: Any, positions: Mapping[int, np.ndarray]) -> Any:
    for axis, indices in positions.items():
        data = relax.op.take(data, constant(indices.astype(np.int64)), axis)
    return data


def space_to_batch(importer: Any, operator: Any) -> Any:
    """Return ``SPACE_TO_BATCH_ND``, which stands around dilated convolutions."""
    (data, blocks, padding), result = _tensors(importer, operator)
    shape, size = _shape(importer, data), _numbers(importer, blocks).tolist()
    # TVM calls a packed function that a bundle has not; reshape and transpose fuse with what is around them.
    pads = [[0, 0], *_numbers(importer, padding).tolist(), *([[0, 0]] * (len(shape) - 1 - len(size)))]
    padded_extents = [extent + sum(pair) for extent, pair in zip(shape, pads, strict=True)]
    padded_image = relax.op.nn.pad(importer.get_tensor_expr(data), [width for pair in pads for width in pair])
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
    return relax.op.reshape(relax.op.permute_dims(blocked_image, order), _shape(importer, result))


def batch_to_space(importer: Any, operator: Any) -> Any:
    """Return ``BATCH_TO_SPACE_ND``, the reverse."""
    (data, blocks, crops), _ = _tensors(importer, operator)
    shape, size = _shape(importer, data), _numbers(importer, blocks).tolist()
    count, batch = len(size), shape[0] // int(np.prod(size))
    other_axes = range(2 * count + 1, count + len(shape))
    order = [count, *(each for axis in range(count) for each in (count + 1 + axis, axis)), *other_axes]
    blocked_image = relax.op.permute_dims(
        relax.op.reshape(importer.get_tensor_expr(data), [*size, batch, *shape[1:]]), order
    )
    merged_extents = [extent * block for extent, block in zip(shape[1:], size, strict=False)]
    merged_image = relax.op.reshape(blocked_image, [batch, *merged_extents, *shape[1 + count :]])
    first, last = zip(*_numbers(importer, crops).tolist(), strict=True)
    axes = list(range(1, count + 1))
    return relax.op.strided_slice(
        merged_image, axes, first, [extent - end for extent, end in zip(merged_extents, last, strict=True)]
    )


CORRECTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "ARG_MAX": functools.partial(extreme_place, function=relax.op.argmax),
    "ARG_MIN": functools.partial(extreme_place, function=relax.op.argmin),
    "BATCH_MATMUL": matrix_product,
    "BATCH_TO_SPACE_ND": batch_to_space,
    "EXPAND_DIMS": expand_dims,
    "FULLY_CONNECTED": dense,
    "MIRROR_PAD": mirror_pad,
    "RESIZE_NEAREST_NEIGHBOR": nearest,
    "SPACE_TO_BATCH_ND": space_to_batch,
    "TRANSPOSE_CONV": transpose_convolution,
}
"""What to call with the importer and the operator, by its kind."""
