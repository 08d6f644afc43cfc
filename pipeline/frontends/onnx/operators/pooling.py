"""Pooling with indices of maxima, and over regions from a frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.onnx.operators.convolutions import window_padding
from pipeline.frontends.onnx.operators.node_call import Converter, NodeCall, scalar
from pipeline.model.passes.bindings import constant


def _max_pool(call: NodeCall) -> Any:
    """Return ``MaxPool`` with indices, tap by tap."""
    if not call.has_result(1):
        return None
    shape = call.shape()
    size = [int(extent) for extent in call.attributes["kernel_shape"]]
    rank = len(size)
    strides = [int(step) for step in call.attributes.get("strides") or [1] * rank]
    dilation = [int(step) for step in call.attributes.get("dilations") or [1] * rank]
    padding = window_padding(call, shape[2:], size)
    counts = [
        _count(extent + padding[i] + padding[rank + i], (size[i] - 1) * dilation[i] + 1, strides[i], call)
        for i, extent in enumerate(shape[2:])
    ]
    numbers = _element_numbers(shape, column_major=bool(call.attributes.get("storage_order", 0)))
    # What rounding up reads behind the padding is padding as well.
    reach = [strides[i] * (counts[i] - 1) + (size[i] - 1) * dilation[i] + 1 for i in range(rank)]
    ends = [max(0, reach[i] - shape[2 + i] - padding[i]) for i in range(rank)]
    widths = [(0, 0), (0, 0), *((padding[i], max(ends[i], padding[rank + i])) for i in range(rank))]
    lowest = float("-inf") if "float" in call.dtype() else int(np.iinfo(call.dtype()).min)
    data = call.normal(relax.op.nn.pad(call.inputs[0], [w for pair in widths for w in pair], "constant", lowest))
    numbers = np.pad(numbers, widths)
    best: Any = None
    for offset in np.ndindex(*size):
        starts = [offset[i] * dilation[i] for i in range(rank)]
        stops = [starts[i] + strides[i] * (counts[i] - 1) + 1 for i in range(rank)]
        value = relax.op.strided_slice(data, list(range(2, 2 + rank)), starts, stops, strides)
        window: Any = (Ellipsis, *(slice(*bounds) for bounds in zip(starts, stops, strides, strict=True)))
        number = constant(np.ascontiguousarray(numbers[window]))
        value = call.normal(value)
        if best is None:
            best, index = value, number
            continue
        is_larger = call.normal(relax.op.greater(value, best))
        index = call.normal(relax.op.where(is_larger, number, index))
        best = call.normal(relax.op.where(is_larger, value, best))
    return relax.Tuple([best, index])


def _count(extent: int, window: int, stride: int, call: NodeCall) -> int:
    """Return the number of windows along one axis."""
    steps = extent - window
    return (-(-steps // stride) if int(call.attributes.get("ceil_mode", 0)) else steps // stride) + 1


def _element_numbers(shape: Sequence[int], *, column_major: bool) -> np.ndarray:
    """Return each element's number in the operator's counting."""
    numbers = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    if not column_major:
        return numbers
    # The channels' order stays; inside of one the first axis runs fastest.
    inner = int(np.prod(shape[2:]))
    order = np.arange(inner).reshape(shape[:1:-1]).transpose()
    return np.asarray(numbers.reshape(*shape[:2], inner)[:, :, 0].reshape(*shape[:2], *[1] * order.ndim) + order)


def _roi_align(call: NodeCall) -> Any:
    """Return ``RoiAlign`` of scaled regions. TVM shifts by half a pixel before it scales."""
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    scale = float(call.attributes.get("spatial_scale", 1.0))
    if scale == 1 or call.text("coordinate_transformation_mode", default) != "half_pixel":
        return None
    data, regions, images = call.inputs
    shifted = relax.op.subtract(relax.op.multiply(regions, scalar(scale, regions)), scalar(0.5, regions))
    images = relax.op.astype(relax.op.expand_dims(images, 1), call.dtype(1))
    size = tuple(int(call.attributes.get(f"output_{side}", 1)) for side in ("height", "width"))
    ratio = int(call.attributes["sampling_ratio"])
    return relax.op.vision.roi_align(data, relax.op.concat([images, shifted], 1), size, 1.0, ratio, aligned=True)


CONVERTERS: dict[str, Converter] = {"MaxPool": _max_pool, "RoiAlign": _roi_align}
