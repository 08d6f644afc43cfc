"""Operators of detectors, with fixed shapes and -1 for missing boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, topi

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, constant_values, dtype, shape
from pipeline.frontends.relay.operators.common import Converter
from pipeline.frontends.relay.operators.elementwise import clip

op = relax.op


def _scalar(attrs: Attributes, name: str, operand: Any, default: float) -> float:
    """Return a number from an old attribute or a new operand."""
    if operand is None:
        return attrs.number(name, default)
    return float(constant_values(operand, name).reshape(-1)[0])


def _get_valid_counts(builder: BindingBuilder, attrs: Attributes, data: Any, threshold: Any = None) -> Any:
    call = op.vision.get_valid_counts(
        data,
        score_threshold=_scalar(attrs, "score_threshold", threshold, 0),
        id_index=_column(attrs, data, "id_index", 0),
        score_index=_column(attrs, data, "score_index", 1),
    )
    return builder.emit(call)


def _all_class_nms(  # noqa: PLR0913, PLR0917 - Relay's operands
    builder: BindingBuilder, attrs: Attributes, boxes: Any, scores: Any, limit: Any, overlap: Any, threshold: Any
) -> Any:
    """Return rows of image, class and box as in ONNX, and their count."""
    attrs.choice("output_format", "onnx")
    if len(shape(boxes)) != 3 or shape(boxes)[2] != 4 or shape(scores)[::2] != shape(boxes)[:2]:
        raise ModelError(f"boxes of the shape {shape(boxes)} do not fit scores of the shape {shape(scores)}")
    limits = [constant_values(operand, "a limit").reshape(-1)[0] for operand in (limit, overlap, threshold)]
    # As ONNX's NonMaxSuppression has them.
    kinds = ("int64", "float32", "float32")
    constants = [builder.constant(bound, kind) for bound, kind in zip(limits, kinds, strict=True)]
    return builder.emit(op.vision.all_class_non_max_suppression(boxes, scores, *constants))


def _column(attrs: Attributes, data: Any, name: str, default: int) -> int:
    """Return a component's position in a box; kernels do not check it."""
    column = attrs.integer(name, default)
    if len(shape(data)) != 3 or not -1 <= column < shape(data)[2]:
        raise ModelError(f"{name}={column} does not fit boxes of the shape {shape(data)}")
    return column


def _non_max_suppression(  # noqa: PLR0913, PLR0917 - Relay's operands
    builder: BindingBuilder,
    attrs: Attributes,
    data: Any,
    valid_count: Any,
    indices: Any,
    max_output_size: Any = None,
    iou_threshold: Any = None,
) -> Any:
    coordinates = _column(attrs, data, "coord_start", 2)
    # Four coordinates follow each other from this column on; kernels do not check that they are there.
    if not 0 <= coordinates <= shape(data)[2] - 4:
        raise ModelError(f"coord_start={coordinates} does not fit boxes of the shape {shape(data)}")
    call = op.vision.non_max_suppression(
        data,
        valid_count,
        indices,
        max_output_size=int(_scalar(attrs, "max_output_size", max_output_size, -1)),
        iou_threshold=_scalar(attrs, "iou_threshold", iou_threshold, 0.5),
        force_suppress=attrs.flag("force_suppress"),
        top_k=attrs.integer("top_k", -1),
        coord_start=coordinates,
        score_index=_column(attrs, data, "score_index", 1),
        id_index=_column(attrs, data, "id_index", 0),
        return_indices=attrs.flag("return_indices", True),
        invalid_to_bottom=attrs.flag("invalid_to_bottom"),
    )
    return builder.emit(call)


def _roi(builder: BindingBuilder, attrs: Attributes, data: Any, rois: Any, align: bool) -> Any:
    attrs.choice("layout", "NCHW")
    size, scale = tuple(attrs.positive("pooled_size", 2)), attrs.number("spatial_scale")
    rois = _check_images(builder, data, rois)
    if not align:
        return builder.kernel(topi.vision.roi_pool_nchw, data, rois, pooled_size=size, spatial_scale=scale)
    ratio, mode = attrs.integer("sample_ratio", -1), attrs.choice("mode", "avg", "max")
    return builder.emit(op.vision.roi_align(data, rois, size, scale, sample_ratio=ratio, mode=mode))


def _check_images(builder: BindingBuilder, data: Any, rois: Any) -> Any:
    """Return regions with checked images; kernels would read foreign memory."""
    if len(shape(data)) != 4 or len(shape(rois)) != 2 or shape(rois)[1] != 5:
        raise ModelError(f"regions of the shape {shape(rois)} do not fit the shape {shape(data)}")
    owners, corners = (builder.emit(op.strided_slice(rois, [1], [first], [end])) for first, end in ((0, 1), (1, 5)))
    return builder.emit(op.concat([clip(builder, owners, 0.0, shape(data)[0] - 1.0), corners], axis=1))


def _roi_align(builder: BindingBuilder, attrs: Attributes, data: Any, rois: Any) -> Any:
    return _roi(builder, attrs, data, rois, align=True)


def _roi_pool(builder: BindingBuilder, attrs: Attributes, data: Any, rois: Any) -> Any:
    return _roi(builder, attrs, data, rois, align=False)


def _multibox_prior(builder: BindingBuilder, attrs: Attributes, data: Any) -> Any:
    """Return the constant anchor boxes: one per size and later ratio."""
    height, width = shape(data)[-2:] if len(shape(data)) == 4 else (0, 0)
    sizes, ratios = _numbers(attrs, "sizes", [1.0]), _numbers(attrs, "ratios", [1.0])
    steps, offsets = _numbers(attrs, "steps", [-1.0, -1.0]), _numbers(attrs, "offsets", [0.5, 0.5])
    if not height * width or len(steps) != 2 or len(offsets) != 2 or not (sizes.size and (ratios > 0).all()):
        raise ModelError(f"these anchors do not fit a tensor of the shape {shape(data)}")
    # A step of -1, the default, stands for the whole image divided by its pixels.
    step_y, step_x = (step if step > 0 else 1 / extent for step, extent in zip(steps, (height, width), strict=True))
    widths = [
        # Shares of the height, so that anchors of ratio 1 are squares in pixels.
        *(size * height / width / 2 for size in sizes),
        *(sizes[0] * height / width * np.sqrt(ratio) / 2 for ratio in ratios[1:]),
    ]
    heights = [*(size / 2 for size in sizes), *(sizes[0] / np.sqrt(ratio) / 2 for ratio in ratios[1:])]
    # SSD's largest map has some thousand anchors; a million is 16 MB of constants.
    if height * width * len(widths) > 2**20:
        raise ModelError("so many anchors are not supported")
    y, x = ((np.arange(extent) + offset) * step for extent, offset, step in
            ((height, offsets[0], step_y), (width, offsets[1], step_x)))  # fmt: skip
    centre_y, centre_x = (coordinates[..., None] for coordinates in np.meshgrid(y, x, indexing="ij"))
    boxes = np.stack([centre_x - widths, centre_y - heights, centre_x + widths, centre_y + heights], axis=-1)
    # Off by default, as in TVM.
    boxes = np.clip(boxes, 0, 1) if attrs.flag("clip") else boxes
    return builder.constant(boxes.reshape(1, -1, 4), dtype(data))


def _numbers(attrs: Attributes, name: str, default: list[float]) -> np.ndarray:
    attribute = attrs.get(name)
    values = default if attribute is None else attribute if isinstance(attribute, list) else [attribute]
    if not all(isinstance(value, int | float) for value in values) or len(values) > 1000:
        raise ModelError(f"expected a list of numbers in {name!r}")
    return np.array(values, np.float64)


TABLE: dict[str, Converter] = {
    "vision.all_class_non_max_suppression": _all_class_nms,
    "vision.get_valid_counts": _get_valid_counts,
    "vision.non_max_suppression": _non_max_suppression,
    "vision.roi_align": _roi_align,
    "vision.roi_pool": _roi_pool,
    "vision.multibox_prior": _multibox_prior,
}
