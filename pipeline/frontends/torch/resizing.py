"""Resizing of images with PyTorch's rounding of positions, not TVM's."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.operators.resizing import ResizedAxis, Resizing, resize
from pipeline.frontends.torch.torch_call import TorchCall, extents


def nearest(call: TorchCall) -> Any:
    """Return ``upsample_nearest2d``, as an operator for whole factors, else gathers."""
    data = call.operands["input"]
    extents_in, extents_out = extents(data)[2:], [int(extent) for extent in call.result.shape[2:]]
    # Whole factors leave nothing to round, and kernels know the operator.
    if all(extent_out % extent_in == 0 for extent_in, extent_out in zip(extents_in, extents_out, strict=True)):
        return relax.op.image.resize2d(
            data, extents_out, layout="NCHW", method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric", rounding_method="floor",
        )  # fmt: skip
    scales = call.operands["scale_factors"] or [None, None]
    for axis, extent_in, extent_out, scale in zip((2, 3), extents_in, extents_out, scales, strict=True):
        # PyTorch computes in 32 bits (area_pixel_compute_scale), with the stated factor where there is one.
        step = np.float32(1 / scale if scale else extent_in / extent_out)
        positions = np.minimum((np.arange(extent_out, dtype=np.float32) * step).astype(np.int64), extent_in - 1)
        data = call.emit(relax.op.take(data, relax.const(positions), axis=axis, mode="clip"))
    return data


def bilinear(call: TorchCall) -> Any:
    """Return ``upsample_bilinear2d``."""
    return _smooth(call, "linear")


def bicubic(call: TorchCall) -> Any:
    """Return ``upsample_bicubic2d``."""
    return _smooth(call, "cubic")


def _smooth(call: TorchCall, mode: str) -> Any:
    operands = call.operands
    data, coordinates = operands["input"], "align_corners" if operands["align_corners"] else "half_pixel"
    sizes = list(zip(extents(data)[2:], (int(extent) for extent in call.result.shape[2:]), strict=True))
    # PyTorch uses the stated factor for coordinates, TVM the ratio of the sizes.
    scales = operands["scale_factors"] or [size / extent for extent, size in sizes]
    has_ratios = all(abs(extent * scale - size) <= 1e-6 for (extent, size), scale in zip(sizes, scales, strict=True))
    # Of a single row or column, TVM divides by zero where corners are aligned.
    if all(size > 1 for _, size in sizes) if operands["align_corners"] else has_ratios:
        return relax.op.image.resize2d(
            data, [size for _, size in sizes], layout="NCHW", method=mode,
            # The alpha of PyTorch's cubic kernel; TVM's default is -0.5.
            coordinate_transformation_mode=coordinates, cubic_alpha=-0.75,
        )  # fmt: skip
    axes = [
        ResizedAxis(axis, extent, size, np.float32(scale))
        for axis, ((extent, size), scale) in enumerate(zip(sizes, scales, strict=True), 2)
    ]
    return resize(call.emit, data, axes, Resizing(coordinates, mode))
