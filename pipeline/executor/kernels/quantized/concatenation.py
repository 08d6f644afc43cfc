"""Concatenation of quantised tensors: bytes rescaled without intermediate floats."""

from __future__ import annotations

from typing import Any

from tvm import relax

from pipeline.executor.kernels.layout.expressions import AXIS, is_image
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.quantized import rescaling
from pipeline.executor.kernels.quantized.rescaling import QuantizationScale, scale_of


def concatenate(rewriter: Rewriter, numbers: Any, scale: QuantizationScale) -> Any:
    """Concatenate dequantised images as channels-last bytes, else None."""
    concat = rewriter.producer(numbers, "concat")
    if concat is None or not isinstance(concat.args[0], relax.Tuple) or not is_image(concat.ty):
        return None
    steps = [rewriter.producer(field, "dequantize") for field in concat.args[0].fields]
    sources = [(step.args[0], scale_of(step)) for step in steps if step is not None and rewriter.is_last(step.args[0])]
    scaled_images = [(rewriter.last(image), own_scale) for image, own_scale in sources if own_scale is not None]
    if len(scaled_images) < len(steps):
        return None
    # Before they are joined: each conversion is fused to what makes the bytes.
    images = [
        rewriter.builder.emit(rescaling.change_scale(rewriter.builder, image, own_scale, scale))
        for image, own_scale in scaled_images
    ]
    return relax.op.concat(images, AXIS[int(concat.attrs.axis) % 4])
