"""Resizing of images with PyTorch's rounding of positions, not TVM's."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.torch.arguments import arguments, extents


def nearest(importer: Any, node: Any) -> Any:
    """Return ``upsample_nearest2d``, as an operator for whole factors, else gathers."""
    operands = arguments(importer, node)
    data = operands["input"]
    extents_in, extents_out = extents(data)[2:], [int(extent) for extent in node.meta["val"].shape[2:]]
    # Whole factors leave nothing to round, and kernels know the operator.
    if all(extent_out % extent_in == 0 for extent_in, extent_out in zip(extents_in, extents_out, strict=True)):
        return relax.op.image.resize2d(
            data, extents_out, layout="NCHW", method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric", rounding_method="floor",
        )  # fmt: skip
    scales = operands["scale_factors"] or [None, None]
    for axis, extent_in, extent_out, scale in zip((2, 3), extents_in, extents_out, scales, strict=True):
        # PyTorch computes in 32 bits (area_pixel_compute_scale), with the stated factor where there is one.
        step = np.float32(1 / scale if scale else extent_in / extent_out)
        positions = np.minimum((np.arange(extent_out, dtype=np.float32) * step).astype(np.int64), extent_in - 1)
        data = importer.block_builder.emit(relax.op.take(data, relax.const(positions), axis=axis, mode="clip"))
    return data


def bilinear(importer: Any, node: Any) -> Any:
    """Return ``upsample_bilinear2d``."""
    return _smooth(importer, node, "linear")


def bicubic(importer: Any, node: Any) -> Any:
    """Return ``upsample_bicubic2d``."""
    return _smooth(importer, node, "cubic")


def _smooth(importer: Any, node: Any, method: str) -> Any:
    operands = arguments(importer, node)
    extents_in = extents(operands["input"])[2:]
    extents_out = [int(extent) for extent in node.meta["val"].shape[2:]]
    for extent_in, extent_out, scale in zip(extents_in, extents_out, operands["scale_factors"] or [], strict=False):
        # PyTorch uses the stated factor for coordinates, TVM the ratio of the sizes.
        if not operands["align_corners"] and abs(extent_in * scale - extent_out) > 1e-6:
            raise ModelError(
                f"{importer.current_node} scales {extent_in} by {scale:g}, which is not {extent_out}; give interpolate "
                "a size, or recompute_scale_factor=True"
            )
    data, emit = operands["input"], importer.block_builder.emit
    if not operands["align_corners"]:
        return _resize(data, extents_out, method, "half_pixel")
    # Aligned corners of a single row or column are those of the first one, where TVM divides by zero: two equal ones
    # are made two, of which one is kept.
    single_axes = [axis for axis, extent in enumerate(extents_out, 2) if extent == 1]
    for axis in single_axes:
        line = emit(relax.op.strided_slice(data, [axis], [0], [1]))
        data = emit(relax.op.concat([line, line], axis))
    value = _resize(data, [max(extent, 2) for extent in extents_out], method, "align_corners")
    for axis in single_axes:
        value = relax.op.strided_slice(emit(value), [axis], [0], [1])
    return value


def _resize(data: Any, size: list[int], method: str, coordinates: str) -> Any:
    # The alpha of PyTorch's cubic kernel; TVM's default is -0.5.
    return relax.op.image.resize2d(
        data, size, layout="NCHW", method=method, coordinate_transformation_mode=coordinates, cubic_alpha=-0.75
    )
