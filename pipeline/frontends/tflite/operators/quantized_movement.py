"""Operators that move integers in any scale. TVM's operators want real numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator, TfliteTensor
from pipeline.frontends.tflite.operators.converter import NOT_QUANTIZED, Converter
from pipeline.frontends.tflite.operators.quantized_values import zero_of
from pipeline.model.passes.bindings import constant

op = relax.op


def _numbers(operator: TfliteOperator, position: int) -> list[int]:
    """Return the values of a constant operand."""
    return [int(value) for value in np.asarray(operator.operands[position].values).reshape(-1)]


def reshape(importer: Any, operator: TfliteOperator, data: int = 0) -> Any:
    """Return an operator that only changes the shape."""
    return op.reshape(importer.value(operator.operands[data]), operator.outputs[0].shape)


def transpose(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``TRANSPOSE``."""
    return op.permute_dims(importer.value(operator.operands[0]), _numbers(operator, 1))


def pad(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``PAD`` with the zero point, or ``PADV2``."""
    data, _, *value = operator.operands
    filler = int(np.asarray(value[0].values).reshape(())) if value else zero_of(operator.outputs[0])
    return op.nn.pad(importer.value(data), _numbers(operator, 1), "constant", filler)


def take_slice(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``SLICE``."""
    data = operator.operands[0]
    first, sizes = _numbers(operator, 1), operator.outputs[0].shape
    last = [begin + size for begin, size in zip(first, sizes, strict=True)]
    return op.strided_slice(importer.value(data), list(range(len(data.shape))), first, last)


def strided_slice(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``STRIDED_SLICE``; backwards by the places of its elements."""
    data, options = operator.operands[0], operator.options
    value, slices = importer.value(data), {}
    masks = options.BeginMask(), options.EndMask(), options.ShrinkAxisMask()
    for axis, (begin, end, step) in enumerate(
        zip(*(_numbers(operator, position) for position in (1, 2, 3)), strict=True)
    ):
        positions = _axis_positions(data.shape[axis], begin, end, step, [bool(mask >> axis & 1) for mask in masks])
        if positions.step > 0:
            slices[axis] = positions
        else:
            value = op.take(value, constant(np.array(positions, np.int64)), axis=axis)
    if slices:
        first, last, steps = (
            [getattr(axis_range, name) for axis_range in slices.values()] for name in ("start", "stop", "step")
        )
        value = op.strided_slice(value, list(slices), first, last, steps)
    return op.reshape(value, operator.outputs[0].shape)


def _axis_positions(extent: int, begin: int, end: int, step: int, masks: list[bool]) -> range:
    if masks[2]:
        return range(begin % extent, begin % extent + 1)
    return range(extent)[slice(None if masks[0] else begin, None if masks[1] else end, step)]


def split(importer: Any, operator: TfliteOperator, data: int, axis: int) -> Any:
    """Return ``SPLIT``, or ``SPLIT_V`` into parts of stated sizes."""
    tensor = operator.operands[data]
    number = _numbers(operator, axis)[0] % len(tensor.shape)
    sizes = [output.shape[number] for output in operator.outputs]
    value = importer.value(tensor)
    return value if len(sizes) == 1 else op.split(value, np.cumsum(sizes[:-1]).tolist(), number)


def pack(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``PACK``."""
    shape = operator.outputs[0].shape
    axis = operator.options.Axis() % len(shape)
    parts = [op.reshape(importer.value(tensor), (*shape[:axis], 1, *shape[axis + 1 :])) for tensor in operator.operands]
    return op.concat(parts, axis) if len(parts) > 1 else parts[0]


def unpack(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``UNPACK``."""
    data = operator.operands[0]
    axis, value = operator.options.Axis() % len(data.shape), importer.value(data)
    parts = [
        importer.bb.emit(op.reshape(op.strided_slice(value, [axis], [position], [position + 1]), output.shape))
        for position, output in enumerate(operator.outputs)
    ]
    return relax.Tuple(parts) if len(parts) > 1 else parts[0]


def tile(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``TILE``."""
    return op.tile(importer.value(operator.operands[0]), _numbers(operator, 1))


def gather(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``GATHER`` without a batch."""
    data, indices = operator.operands
    axis = operator.options.Axis() % len(data.shape)
    return op.reshape(op.take(importer.value(data), importer.value(indices), axis=axis), operator.outputs[0].shape)


def gather_nd(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``GATHER_ND``."""
    data, indices = map(importer.value, operator.operands)
    return op.gather_nd(data, importer.bb.emit(op.astype(indices, "int64")))


def reverse(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``REVERSE_V2``."""
    value = importer.value(operator.operands[0])
    for axis in _numbers(operator, 1):
        value = op.flip(value, axis % len(operator.operands[0].shape))
    return value


def depth_to_space(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``DEPTH_TO_SPACE``."""
    batch, height, width, channels = operator.operands[0].shape
    size = operator.options.BlockSize()
    parts = op.reshape(importer.value(operator.operands[0]), (batch, height, width, size, size, channels // size**2))
    return op.reshape(op.permute_dims(parts, [0, 1, 3, 2, 4, 5]), operator.outputs[0].shape)


def space_to_depth(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``SPACE_TO_DEPTH``."""
    batch, height, width, channels = operator.operands[0].shape
    size = operator.options.BlockSize()
    parts = op.reshape(
        importer.value(operator.operands[0]), (batch, height // size, size, width // size, size, channels)
    )
    return op.reshape(op.permute_dims(parts, [0, 1, 3, 2, 4, 5]), operator.outputs[0].shape)


def space_to_batch(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``SPACE_TO_BATCH_ND`` of an image, padded with the zero point."""
    data, output = operator.operands[0], operator.outputs[0]
    (rows, columns), widths = _numbers(operator, 1), _numbers(operator, 2)
    padded = op.nn.pad(importer.value(data), [0, 0, *widths, 0, 0], "constant", zero_of(output))
    batch, channels = data.shape[0], data.shape[3]
    parts = op.reshape(padded, (batch, output.shape[1], rows, output.shape[2], columns, channels))
    return op.reshape(op.permute_dims(parts, [2, 4, 0, 1, 3, 5]), output.shape)


def batch_to_space(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``BATCH_TO_SPACE_ND`` of an image."""
    data, output = operator.operands[0], operator.outputs[0]
    (rows, columns), crops = _numbers(operator, 1), _numbers(operator, 2)
    batch, height, width, channels = data.shape
    parts = op.reshape(importer.value(data), (rows, columns, batch // (rows * columns), height, width, channels))
    shape = (batch // (rows * columns), height * rows, width * columns, channels)
    image = op.reshape(op.permute_dims(parts, [2, 3, 0, 4, 1, 5]), shape)
    first = [crops[0], crops[2]]
    return op.strided_slice(image, [1, 2], first, [first[0] + output.shape[1], first[1] + output.shape[2]])


def nearest(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``RESIZE_NEAREST_NEIGHBOR``."""
    data, output, options = operator.operands[0], operator.outputs[0], operator.options
    value = importer.value(data)
    for axis in (1, 2):
        positions = _nearest_places(
            data.shape[axis], output.shape[axis], align=options.AlignCorners(), centers=options.HalfPixelCenters()
        )
        value = op.take(value, constant(positions), axis=axis)
    return value


def _nearest_places(extent: int, results: int, *, align: bool, centers: bool) -> np.ndarray:
    """Return the positions along an axis in LiteRT's float32."""
    scale = np.float32(extent - 1) / np.float32(results - 1) if align and results > 1 else None
    scale = np.float32(extent) / np.float32(results) if scale is None else scale
    scaled = (np.arange(results).astype(np.float32) + np.float32(0.5 if centers else 0)) * scale
    rounded = np.floor(scaled + np.float32(0.5)) if align else np.floor(scaled)
    positions: np.ndarray = np.clip(rounded.astype(np.int64), 0, extent - 1)
    return positions


def extreme_place(importer: Any, operator: TfliteOperator, function: Callable[..., Any]) -> Any:
    """Return ``ARG_MAX`` or ``ARG_MIN``, the first place of equal ones."""
    value = importer.value(operator.operands[0])
    # Kernels search bytes as they are, which are a quarter of the memory.
    value = op.astype(value, "int32") if operator.operands[0].dtype == "int16" else value
    indices = function(value, _numbers(operator, 1)[0] % len(operator.operands[0].shape))
    return op.reshape(op.astype(indices, operator.outputs[0].dtype), operator.outputs[0].shape)


def _object(*positions: int, data: int = 0) -> Callable[[Any, TfliteOperator], str]:
    """Return the objection to unquantised tensors and computed operands."""

    def why_not(_importer: Any, operator: TfliteOperator) -> str:
        if not _is_integer(operator.operands[data]):
            return NOT_QUANTIZED
        open_operand = next(
            (operator.operands[position] for position in positions if operator.operands[position].values is None), None
        )
        return f"its operand {open_operand.name!r} is no constant" if open_operand is not None else ""

    return why_not


def _is_integer(tensor: TfliteTensor) -> bool:
    return tensor.dtype in ("int8", "uint8", "int16") and (tensor.scale is None or not tensor.scale.per_channel)


def _object_to_slice(importer: Any, operator: TfliteOperator) -> str:
    options = operator.options
    if options is not None and (options.EllipsisMask() or options.NewAxisMask()):
        return "it has an ellipsis or a new axis"
    return _object(1, 2, 3)(importer, operator)


def _object_to_padding(importer: Any, operator: TfliteOperator) -> str:
    if operator.outputs[0].scale is None:
        return NOT_QUANTIZED
    return _object(*range(1, len(operator.operands)))(importer, operator)


def _object_to_blocks(importer: Any, operator: TfliteOperator) -> str:
    if len(operator.operands[0].shape) != 4 or operator.outputs[0].scale is None:
        return NOT_QUANTIZED
    return _object(1, 2)(importer, operator)


def _object_to_gathering(importer: Any, operator: TfliteOperator) -> str:
    batch = getattr(operator.options, "BatchDims", lambda: 0)()
    return "it has a batch" if batch else _object()(importer, operator)


CONVERTERS: dict[str, Converter] = {
    "ARG_MAX": Converter(functools.partial(extreme_place, function=op.argmax), _object(1)),
    "ARG_MIN": Converter(functools.partial(extreme_place, function=op.argmin), _object(1)),
    "BATCH_TO_SPACE_ND": Converter(batch_to_space, _object_to_blocks),
    "DEPTH_TO_SPACE": Converter(depth_to_space, _object()),
    "EXPAND_DIMS": Converter(reshape, _object()),
    "GATHER": Converter(gather, _object_to_gathering),
    "GATHER_ND": Converter(gather_nd, _object()),
    "PACK": Converter(pack, _object()),
    "PAD": Converter(pad, _object_to_padding),
    "PADV2": Converter(pad, _object_to_padding),
    "RESHAPE": Converter(reshape, _object()),
    "RESIZE_NEAREST_NEIGHBOR": Converter(nearest, _object(1)),
    "REVERSE_V2": Converter(reverse, _object(1)),
    "SLICE": Converter(take_slice, _object(1)),
    "SPACE_TO_BATCH_ND": Converter(space_to_batch, _object_to_blocks),
    "SPACE_TO_DEPTH": Converter(space_to_depth, _object()),
    "SPLIT": Converter(functools.partial(split, data=1, axis=0), _object(0, data=1)),
    "SPLIT_V": Converter(functools.partial(split, data=0, axis=2), _object(1, 2)),
    "SQUEEZE": Converter(reshape, _object()),
    "STRIDED_SLICE": Converter(strided_slice, _object_to_slice),
    "TILE": Converter(tile, _object(1)),
    "TRANSPOSE": Converter(transpose, _object(1)),
    "UNPACK": Converter(unpack, _object()),
}
