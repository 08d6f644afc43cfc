"""Convolutions, also quantised, in forms that TVM's importer lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from pipeline.frontends.onnx.operators.node_call import Converter, NodeCall, extents

_LAYOUTS = {1: ("NCW", "OIW", "IOW"), 2: ("NCHW", "OIHW", "IOHW"), 3: ("NCDHW", "OIDHW", "IODHW")}
_CONVOLUTIONS = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
_TRANSPOSED = {1: relax.op.nn.conv1d_transpose, 2: relax.op.nn.conv2d_transpose, 3: relax.op.nn.conv3d_transpose}


def convolve(call: NodeCall, data: Any, weights: Any, bias: Any = None) -> Any:
    """Return the convolution of a node's attributes with other operands."""
    size = extents(weights)[2:]
    rank = len(size)
    layout, kernel_layout, _ = _LAYOUTS[rank]
    strides, dilation = (_extents(call, name, rank) for name in ("strides", "dilations"))
    result = _CONVOLUTIONS[rank](
        data, weights, strides, window_padding(call, extents(data)[2:], size), dilation,
        int(call.attributes.get("group", 1)), layout, kernel_layout,
    )  # fmt: skip
    return result if bias is None else relax.op.add(result, relax.op.reshape(bias, [1, -1, *[1] * rank]))


def window_padding(call: NodeCall, shape: Sequence[int], size: Sequence[int]) -> list[int]:
    """Return the paddings by ``pads`` or ``auto_pad``, starts then ends."""
    rank = len(size)
    mode = call.text("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return [int(width) for width in call.attributes.get("pads", [0] * (2 * rank))]
    if mode == "VALID":
        return [0] * (2 * rank)
    strides, dilation = (_extents(call, name, rank) for name in ("strides", "dilations"))
    totals = [
        max((-(-extent // stride) - 1) * stride + (window - 1) * step + 1 - extent, 0)
        for extent, window, stride, step in zip(shape, size, strides, dilation, strict=True)
    ]
    smaller, larger = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return [*smaller, *larger] if mode == "SAME_UPPER" else [*larger, *smaller]


def _extents(call: NodeCall, name: str, rank: int) -> list[int]:
    return [int(extent) for extent in call.attributes.get(name) or [1] * rank]


def _convolution(call: NodeCall) -> Any:
    """Return ``Conv`` with ``auto_pad``, which TVM's importer refuses after its own padding."""
    if call.text("auto_pad", "NOTSET") == "NOTSET" or len(call.shape(1)) - 2 not in _CONVOLUTIONS:
        return None
    return convolve(call, *call.inputs)


def _transposed_convolution(call: NodeCall) -> Any:
    """Return ``ConvTranspose`` with stated extents, unknown to TVM's importer."""
    size = call.shape(1)[2:]
    rank = len(size)
    if "output_shape" not in call.attributes and call.text("auto_pad", "NOTSET") not in ("SAME_UPPER", "SAME_LOWER"):
        return None
    strides, dilation = (_extents(call, name, rank) for name in ("strides", "dilations"))
    output_padding = [int(width) for width in call.attributes.get("output_padding") or [0] * rank]
    shape = call.shape()[2:]
    stated = call.attributes.get("output_shape") or [e * stride for e, stride in zip(shape, strides, strict=True)]
    surplus = [
        (extent - 1) * stride + (window - 1) * step + 1 + more - int(target)
        for extent, stride, window, step, more, target in zip(
            shape, strides, size, dilation, output_padding, stated[-rank:], strict=True
        )
    ]
    smaller = [max(total, 0) // 2 for total in surplus]
    larger = [max(total, 0) - max(total, 0) // 2 for total in surplus]
    is_upper = call.text("auto_pad", "NOTSET") == "SAME_UPPER"
    padding = [*smaller, *larger] if is_upper or "output_shape" in call.attributes else [*larger, *smaller]
    layout, _, kernel_layout = _LAYOUTS[rank]
    missing = [more + max(-total, 0) for more, total in zip(output_padding, surplus, strict=True)]
    result = _TRANSPOSED[rank](
        call.inputs[0], call.inputs[1], strides, padding, missing, dilation, int(call.attributes.get("group", 1)),
        layout, kernel_layout,
    )  # fmt: skip
    bias = call.input(2)
    return result if bias is None else relax.op.add(result, relax.op.reshape(bias, [1, -1, *[1] * rank]))


def _integer_convolution(call: NodeCall) -> Any:
    """Return ``ConvInteger``, exactly, in 32 bits."""
    data, weights = (relax.op.astype(call.inputs[position], "int32") for position in (0, 1))
    if call.input(2) is not None:
        data = relax.op.subtract(data, relax.op.astype(relax.op.reshape(call.inputs[2], []), "int32"))
    if call.input(3) is not None:
        zero = relax.op.astype(call.inputs[3], "int32")
        shape = [-1, *[1] * (len(call.shape(1)) - 1)] if call.shape(3) else []
        weights = relax.op.subtract(weights, relax.op.reshape(zero, shape))
    return convolve(call, call.normal(data), call.normal(weights))


def _deformable_convolution(call: NodeCall) -> Any:
    """Return ``DeformConv``: pixels at computed positions, times a matrix."""
    batch, channels, *_ = call.shape()
    outputs, group_channels, rows, columns = call.shape(1)
    groups, height, width = channels // group_channels, *call.shape(2)[2:]
    operands = [call.inputs[0], call.inputs[2], *([] if call.input(4) is None else [call.inputs[4]])]
    patches = call.kernel(_sampler(call, (rows, columns)), *operands, name="deformable_patches")
    patches = relax.op.reshape(patches, [batch, groups, group_channels * rows * columns, height * width])
    weights = relax.op.reshape(call.inputs[1], [groups, outputs // groups, group_channels * rows * columns])
    result = relax.op.reshape(relax.op.matmul(weights, patches), [batch, outputs, height, width])
    bias = call.input(3)
    return result if bias is None else relax.op.add(result, relax.op.reshape(bias, [1, -1, 1, 1]))


def _sampler(call: NodeCall, size: tuple[int, int]) -> Any:
    """Return the kernel of bilinear samples per pixel and tap."""
    channels, height, width = call.shape()[1:]
    strides, dilation = (_extents(call, name, 2) for name in ("strides", "dilations"))
    top, margin, *_ = window_padding(call, (height, width), size)
    offset_channels = channels // int(call.attributes.get("offset_group", 1))
    taps = size[0] * size[1]

    def sample(data: Any, offset: Any, mask: Any = None) -> Any:
        def pixel(batch: Any, channel: Any, row: Any, column: Any) -> Any:
            is_inside = tirx.all(row >= 0, row < height, column >= 0, column < width)
            inner_row, inner_column = (
                tirx.max(
                    tirx.min(position, tirx.const(extent - 1, position.ty.dtype)), tirx.const(0, position.ty.dtype)
                )
                for position, extent in ((row, height), (column, width))
            )
            return tirx.if_then_else(
                is_inside, data[batch, channel, inner_row, inner_column], tirx.const(0, data.dtype)
            )

        def element(batch: Any, channel: Any, tap: Any, y: Any, x: Any) -> Any:
            number = tirx.floordiv(channel, offset_channels) * taps + tap
            row = y * strides[0] - top + tirx.floordiv(tap, size[1]) * dilation[0] + offset[batch, 2 * number, y, x]
            column = (
                x * strides[1]
                - margin
                + tirx.floormod(tap, size[1]) * dilation[1]
                + offset[batch, 2 * number + 1, y, x]
            )
            first_row, first_column = tirx.floor(row), tirx.floor(column)
            total = tirx.const(0, data.dtype)
            for below, beside in np.ndindex(2, 2):
                weight = row - first_row if below else 1 - (row - first_row)
                weight *= column - first_column if beside else 1 - (column - first_column)
                places_read = tirx.Cast("int64", first_row) + below, tirx.Cast("int64", first_column) + beside
                total = total + weight * pixel(batch, channel, *places_read)
            return total if mask is None else total * mask[batch, number, y, x]

        shape = (data.shape[0], channels, taps, *offset.shape[2:])
        return te.compute(shape, element, "deformable_patches")

    return sample


def _columns_to_image(call: NodeCall) -> Any:
    """Return ``Col2Im``: each pixel sums its column elements."""
    shape = call.result_shape() if call.values(1) is None else None
    image = shape[2:] if shape else [int(extent) for extent in call.values(1)]  # type: ignore[union-attr]
    batch, rows, count = call.shape()
    block = _block(call, image, rows, count)
    elements, hits = _hits(call, image, block)
    channels = rows // int(np.prod(block))
    data = relax.op.reshape(call.inputs[0], [batch, channels, int(np.prod(block)) * count])
    # One more element, a zero, for the pixels on which fewer elements lie than on others.
    data = relax.op.nn.pad(data, [0, 0, 0, 0, 0, 1])
    data = relax.op.take(call.normal(data), relax.const(elements.reshape(-1), "int64"), 2)
    data = relax.op.sum(relax.op.reshape(data, [batch, channels, len(elements), hits]), [3])
    return relax.op.reshape(data, [batch, channels, *image])


def _block(call: NodeCall, image: Sequence[int], rows: int, count: int) -> list[int]:
    """Return a block's extents, if computed by the number of columns."""
    if (values := call.values(2)) is not None:
        return [int(extent) for extent in values]
    candidates = [
        block
        for block in np.ndindex(*(extent + 1 for extent in image))
        if all(block) and rows % np.prod(block) == 0 and np.prod(_counts(call, image, block)) == count
    ]
    channels = call.result_shape()[1]
    candidates = [block for block in candidates if np.prod(block) * channels == rows]
    if len(candidates) != 1:
        raise ValueError("the extents of its blocks depend on values")
    return list(candidates[0])


def _counts(call: NodeCall, image: Sequence[int], block: Sequence[int]) -> list[int]:
    rank = len(image)
    strides, dilation = (_extents(call, name, rank) for name in ("strides", "dilations"))
    pads = [int(width) for width in call.attributes.get("pads") or [0] * (2 * rank)]
    return [
        max((image[i] + pads[i] + pads[rank + i] - dilation[i] * (block[i] - 1) - 1) // strides[i] + 1, 0)
        for i in range(rank)
    ]


def _hits(call: NodeCall, image: Sequence[int], block: Sequence[int]) -> tuple[np.ndarray, int]:
    """Return the column elements of each pixel, and their maximum count."""
    rank, counts = len(image), _counts(call, image, block)
    strides, dilation = (_extents(call, name, rank) for name in ("strides", "dilations"))
    pads = [int(width) for width in call.attributes.get("pads") or [0] * (2 * rank)]
    elements: list[list[int]] = [[] for _ in range(int(np.prod(image)))]
    for number, index in enumerate(np.ndindex(*block, *counts)):
        pixel = [index[rank + i] * strides[i] - pads[i] + index[i] * dilation[i] for i in range(rank)]
        if all(0 <= position < extent for position, extent in zip(pixel, image, strict=True)):
            elements[int(np.ravel_multi_index(pixel, tuple(image)))].append(number)
    hits = max(1, *(len(numbers) for numbers in elements))
    zero = int(np.prod(block) * np.prod(counts))
    return np.array([numbers + [zero] * (hits - len(numbers)) for numbers in elements], np.int64), hits


CONVERTERS: dict[str, Converter] = {
    "Col2Im": _columns_to_image,
    "Conv": _convolution,
    "ConvInteger": _integer_convolution,
    "ConvTranspose": _transposed_convolution,
    "DeformConv": _deformable_convolution,
}
