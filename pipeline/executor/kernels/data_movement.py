"""Data movement: operators on tensors with channels last, without transposes."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx

from pipeline.executor.kernels.layout.expressions import AXIS, TO_FIRST, TO_LAST, extents, is_static, name_of
from pipeline.executor.kernels.layout.rewriter import ModelLayout, Rewrite, Rewriter


class DataMovement(Rewrite):
    """Pure data movement, and the parts of a split."""

    operators = frozenset({"permute_dims", "image.resize2d", "nn.pad", "take", ""})

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Return the same operator on data with channels last."""
        return _MOVES[name_of(call)](rewriter, call)


def _permute_dims(rewriter: Rewriter, call: Any) -> Any:
    """Transpose from the current layout, cancelling an earlier transpose."""
    data = call.args[0]
    if call.attrs.axes is None or not isinstance(data, relax.Var):
        return None
    axes = tuple(int(axis) % data.ty.ndim for axis in call.attrs.axes)
    if not rewriter.is_last(data):
        # The model's own turn to channels first: with channels last, its result is the tensor that comes in.
        return rewriter.plain(data) if axes == TO_FIRST else None
    source, order = rewriter.last(data), [TO_LAST.index(axis) for axis in axes]
    return ModelLayout(source if order == sorted(order) else relax.op.permute_dims(source, order))


def _resize(rewriter: Rewriter, call: Any) -> Any:
    """Resize a channels-last image."""
    (data, size), attrs = call.args, call.attrs
    # It takes a region of interest, which is in the model's order of axes.
    is_crop = attrs.coordinate_transformation_mode == "tf_crop_and_resize"
    if attrs.layout != "NCHW" or is_crop or not rewriter.is_last(data) or not is_static(data, call):
        return None
    return relax.op.image.resize2d(
        rewriter.last(data), size, layout="NHWC", method=attrs.method,
        coordinate_transformation_mode=attrs.coordinate_transformation_mode, rounding_method=attrs.rounding_method,
        cubic_alpha=attrs.cubic_alpha, cubic_exclude=attrs.cubic_exclude,
        extrapolation_value=attrs.extrapolation_value, out_dtype=attrs.out_dtype,
    )  # fmt: skip


def _pad(rewriter: Rewriter, call: Any) -> Any:
    """Pad a channels-last image."""
    data, attrs = call.args[0], call.attrs
    if not rewriter.is_last(data):
        return None
    widths = [int(width) for width in attrs.pad_width]
    pad_widths = [width for axis in TO_LAST for width in widths[2 * axis : 2 * axis + 2]]
    return relax.op.nn.pad(rewriter.last(data), pad_widths, attrs.pad_mode, float(attrs.pad_value))


def _take(rewriter: Rewriter, call: Any) -> Any:
    """Slice a channels-last image."""
    (data, indices), attrs = call.args, call.attrs
    # With several axes of indices the result has more axes than an image.
    if not rewriter.is_last(data) or attrs.axis is None or indices.ty.ndim != 1:
        return None
    return relax.op.take(rewriter.last(data), rewriter.plain(indices), AXIS[int(attrs.axis) % 4], str(attrs.mode))


def _split_part(rewriter: Rewriter, value: Any) -> Any:
    """Return one part of a split channels-last image."""
    split = rewriter.producer(value.tuple_value, "split") if isinstance(value, relax.TupleGetItem) else None
    if split is None or not rewriter.is_last(split.args[0]) or not is_static(split.args[0]):
        return None
    data, axis = split.args[0], int(split.attrs.axis) % 4
    extent, sections = extents(data.ty)[axis], split.attrs.indices_or_sections
    # A number of sections, the last of which may be smaller; else the positions between them.
    if isinstance(sections, int | tirx.IntImm):
        size = -(-extent // int(sections))
        positions = list(range(size, extent, size))
    else:
        positions = [int(section) for section in sections]
    first, last = [0, *positions][value.index], [*positions, extent][value.index]
    return relax.op.strided_slice(rewriter.last(data), [AXIS[axis]], [first], [last])


_MOVES = {
    "permute_dims": _permute_dims,
    "image.resize2d": _resize,
    "nn.pad": _pad,
    "take": _take,
    # The part of a split is no call of an operator.
    "": _split_part,
}
