"""Samples of images at computed positions: crops, windows, grids, SSD's boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, topi

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, constant_values, dtype, shape
from pipeline.frontends.relay.operators.common import Converter, cast, change_layout, reshape
from pipeline.frontends.relay.operators.elementwise import clip, round_away_from_zero

op = relax.op


def _crop_and_resize(builder: BindingBuilder, attrs: Attributes, x: Any, boxes: Any, owners: Any) -> Any:
    """Crop boxes, in shares of their images, and resize them."""
    method = attrs.choice("method", "bilinear", "nearest_neighbor")
    layout = attrs.choice("layout", "NCHW", "NHWC")
    if len(shape(x)) != 4 or len(shape(boxes)) != 2 or shape(boxes)[1] != 4 or shape(owners) != shape(boxes)[:1]:
        raise ModelError(f"boxes of the shape {shape(boxes)} do not fit the shape {shape(x)}")
    # A box of an image that is not there would read foreign memory.
    last = relax.prim_value(shape(x)[0] - 1)
    owners = builder.emit(op.clip(cast(builder, owners, "int32"), relax.prim_value(0), last))
    size, fill = attrs.positive("crop_size", 2), attrs.number("extrapolation_value", 0.0)
    out_dtype = attrs.dtype("out_dtype", dtype(x))
    if method == "nearest_neighbor":
        crops = _nearest_crops(builder, change_layout(builder, x, layout, "NHWC"), boxes, owners, size, fill)
        return cast(builder, change_layout(builder, crops, "NHWC", layout), out_dtype)
    return builder.kernel(
        topi.image.crop_and_resize,
        x,
        boxes,
        owners,
        crop_size=tuple(size),
        layout=layout,
        method=method,
        extrapolation_value=fill,
        out_dtype=out_dtype,
    )


def _nearest_crops(  # noqa: PLR0913, PLR0917 - all of a crop
    builder: BindingBuilder, x: Any, boxes: Any, owners: Any, size: list[int], fill: float
) -> Any:
    """Pick pixels by position. TVM's kernel rounds halves to even ones, Relay's away from zero."""
    boxes_count, kind = shape(boxes)[0], dtype(boxes)
    rows, masks = [reshape(builder, cast(builder, owners, "int64"), (boxes_count, 1, 1, 1))], []
    for number, extent in enumerate(size):
        first, end = (
            builder.emit(op.strided_slice(boxes, [1], [column], [column + 1])) for column in (number, number + 2)
        )
        last_pixel = shape(x)[1 + number] - 1
        # A single pixel lies in the middle of its box, as TensorFlow defines it.
        shares = np.arange(extent).reshape(1, -1) / (extent - 1) if extent > 1 else np.full((1, 1), 0.5)
        span = builder.emit(op.multiply(builder.emit(op.subtract(end, first)), builder.constant(shares, kind)))
        coordinates = builder.emit(op.multiply(builder.emit(op.add(span, first)), builder.constant(last_pixel, kind)))
        ends = (builder.constant(bound, kind) for bound in (0, last_pixel))
        above_first, below_last = (
            builder.emit(compare(coordinates, end))
            for compare, end in zip((op.greater_equal, op.less_equal), ends, strict=True)
        )
        axis_shape = [boxes_count, 1, 1, 1]
        axis_shape[1 + number] = extent
        masks.append(reshape(builder, builder.emit(op.logical_and(above_first, below_last)), axis_shape))
        # Clipped even where the fill replaces the pixel: it is read in any case.
        index = cast(
            builder, clip(builder, round_away_from_zero(builder, coordinates), 0.0, float(last_pixel)), "int64"
        )
        rows.append(reshape(builder, index, axis_shape))
    indices = [builder.emit(op.broadcast_to(row, (boxes_count, *size, 1))) for row in rows]
    pixels = builder.emit(op.gather_nd(x, builder.emit(op.concat(indices, axis=3))))
    is_inside = builder.emit(op.logical_and(*masks))
    return builder.emit(op.where(is_inside, pixels, builder.constant(fill, dtype(x))))


def _deformable_conv2d(builder: BindingBuilder, attrs: Attributes, x: Any, offset: Any, weight: Any) -> Any:
    """Convert in the usual order of the axes."""
    layout, kernel_layout = attrs.choice("data_layout", "NCHW", "NHWC"), attrs.choice("kernel_layout", "OIHW", "HWIO")
    parts = attrs.integer("deformable_groups", 1)
    if attrs.integer("groups", 1) != 1:
        raise ModelError("groups are not supported, as they were not by TVM")
    if any(len(shape(tensor)) != 4 for tensor in (x, offset, weight)):
        raise ModelError("expected tensors of 4 axes")
    x, offset = (change_layout(builder, tensor, layout, "NCHW") for tensor in (x, offset))
    weight = change_layout(builder, weight, kernel_layout, "OIHW")
    _, channels, height, width = shape(weight)
    fits = shape(offset)[1] == 2 * parts * height * width and shape(x)[1] == channels
    if not fits or shape(x)[1] % parts:
        raise ModelError(f"the shapes {shape(x)}, {shape(offset)} and {shape(weight)} do not fit")
    out_dtype = attrs.dtype("out_dtype", dtype(x))
    # The kernel computes its positions in the dtype of the offsets and sums in `out_dtype`. No later pass widens what
    # is inside of a kernel, as it does for operators.
    widened_operands = (cast(builder, tensor, _sum_dtype(dtype(tensor))) for tensor in (x, offset, weight))
    convolved_image = builder.kernel(
        topi.nn.deformable_conv2d_nchw,
        *widened_operands,
        strides=attrs.positive("strides", 2),
        padding=attrs.padding(2),
        dilation=attrs.positive("dilation", 2),
        deformable_groups=parts,
        groups=1,
        out_dtype=_sum_dtype(out_dtype),
    )
    return change_layout(builder, cast(builder, convolved_image, out_dtype), "NCHW", layout)


def _sum_dtype(kind: str) -> str:
    """Return the dtype of sums. A sum of float16 stands still at 2,048 times an addend."""
    return "float32" if kind == "float16" else kind


def _dilation2d(builder: BindingBuilder, attrs: Attributes, x: Any, weight: Any) -> Any:
    """Return the largest sum of pixels and weights per channel."""
    layout, kernel_layout = attrs.choice("data_layout", "NCHW", "NHWC"), attrs.choice("kernel_layout", "IHW", "HWI")
    x, weight = change_layout(builder, x, layout, "NCHW"), change_layout(builder, weight, kernel_layout, "IHW")
    if len(shape(x)) != 4 or len(shape(weight)) != 3 or shape(x)[1] != shape(weight)[0]:
        raise ModelError(f"weights of the shape {shape(weight)} do not fit the shape {shape(x)}")
    dilated_image = builder.kernel(
        topi.image.dilation2d_nchw,
        x,
        weight,
        stride=attrs.positive("strides", 2),
        padding=attrs.padding(2),
        dilations=attrs.positive("dilations", 2),
        out_dtype=attrs.dtype("out_dtype", dtype(x)),
    )
    return change_layout(builder, dilated_image, "NCHW", layout)


def _affine_grid(builder: BindingBuilder, attrs: Attributes, matrices: Any) -> Any:
    size = attrs.positive("target_shape", 2)
    if len(shape(matrices)) != 3 or shape(matrices)[1:] != (2, 3):
        raise ModelError(f"expected matrices of 2 by 3, found the shape {shape(matrices)}")
    return builder.emit(op.image.affine_grid(matrices, tuple(size)))


def _multibox_transform_loc(builder: BindingBuilder, attrs: Attributes, classes: Any, moves: Any, anchors: Any) -> Any:
    """Return rows of class, score and box above the threshold, counted."""
    batch, kinds, count = shape(classes)
    if shape(moves) != (batch, 4 * count) or shape(anchors) != (1, count, 4) or kinds < 2:
        raise ModelError(f"the shapes {shape(classes)}, {shape(moves)} and {shape(anchors)} do not fit")
    # Class 0 is the background.
    foreground = builder.emit(op.strided_slice(classes, [1], [1], [kinds]))
    scores = builder.emit(op.max(foreground, axis=1))
    labels = cast(builder, builder.emit(op.argmax(foreground, axis=1)), dtype(classes))
    threshold = builder.constant(attrs.number("threshold", 0.01), dtype(classes))
    keep = builder.emit(op.greater_equal(scores, threshold))
    boxes = _decode_boxes(builder, attrs, reshape(builder, moves, (batch, count, 4)), anchors)
    columns = [reshape(builder, column, (batch, count, 1)) for column in (labels, scores)]
    rows = builder.emit(op.concat([*columns, boxes], axis=2))
    counts = builder.emit(op.sum(cast(builder, keep, "int32"), axis=[1]))
    return _move_to_front(builder, rows, keep, counts), counts


def _decode_boxes(builder: BindingBuilder, attrs: Attributes, moves: Any, anchors: Any) -> Any:
    """Return boxes by corners: anchors moved and stretched by shares."""
    attribute = attrs.get("variances")
    variances = np.array(attribute if isinstance(attribute, list) else [0.1, 0.1, 0.2, 0.2], np.float64)
    if variances.shape != (4,):
        raise ModelError(f"expected 4 variances, found {attribute!r}")
    corners = constant_values(anchors, "the anchors").astype(np.float64)
    size, centre = corners[..., 2:] - corners[..., :2], (corners[..., 2:] + corners[..., :2]) / 2

    def scale_moves(first: int, factor: np.ndarray) -> Any:
        part = builder.emit(op.strided_slice(moves, [2], [first], [first + 2]))
        return builder.emit(op.multiply(part, builder.constant(factor, dtype(moves))))

    middle = builder.emit(op.add(scale_moves(0, variances[:2] * size), builder.constant(centre, dtype(moves))))
    relative_sizes = builder.emit(op.exp(scale_moves(2, np.broadcast_to(variances[2:], size.shape))))
    # Sizes are exponents of the anchors' sizes (Liu et al., SSD, 2016, equation 2).
    half = builder.emit(op.multiply(relative_sizes, builder.constant(size / 2, dtype(moves))))
    corner_pairs = [builder.emit(operator(middle, half)) for operator in (op.subtract, op.add)]
    boxes = builder.emit(op.concat(corner_pairs, axis=2))
    return builder.emit(op.clip(boxes, 0, 1)) if attrs.flag("clip", True) else boxes


def _move_to_front(builder: BindingBuilder, rows: Any, keep: Any, counts: Any) -> Any:
    """Return the kept rows in order, then -1."""
    batch, count, width = shape(rows)
    positions = builder.constant(np.arange(count).reshape(1, count), "int32")
    # A stable sort without one: rows that are kept have keys below the count, the others above.
    positions_behind = builder.emit(op.add(positions, builder.constant(count, "int32")))
    order = builder.emit(op.argsort(builder.emit(op.where(keep, positions, positions_behind)), axis=1, dtype="int64"))
    index = builder.emit(op.broadcast_to(reshape(builder, order, (batch, count, 1)), (batch, count, width)))
    sorted_rows = builder.emit(op.gather_elements(rows, index, 1))
    is_row = builder.emit(op.less(positions, reshape(builder, counts, (batch, 1))))
    is_row = reshape(builder, is_row, (batch, count, 1))
    return builder.emit(op.where(is_row, sorted_rows, builder.constant(-1, dtype(rows))))


TABLE: dict[str, Converter] = {
    "image.affine_grid": _affine_grid,
    "image.crop_and_resize": _crop_and_resize,
    "image.dilation2d": _dilation2d,
    "nn.deformable_conv2d": _deformable_conv2d,
    "vision.multibox_transform_loc": _multibox_transform_loc,
}
