"""Byte lines: one-axis byte convolutions as images of one row."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst

from pipeline.executor.kernels.layout import lines
from pipeline.executor.kernels.layout.expressions import constant, is_static
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.quantized import integer_sums
from pipeline.executor.kernels.quantized.rescaling import scale_of


def as_image(rewriter: Rewriter, call: Any, operands: list[Any]) -> tuple[Any, list[Any]] | None:
    """Return a ``conv1d`` and its dequantisations for images, else None."""
    data, weights = operands
    is_constant = all(isinstance(operand, GenericConst) for operand in weights.args)
    if not is_constant or not isinstance(data.args[0], relax.Var) or scale_of(data) is None:
        return None
    if str(call.attrs.data_layout) != "NCW" or not is_static(call, data):
        return None
    image = rewriter.builder.normalize(_dequantize(rewriter.line(data.args[0]), data))
    # Their types are read, and no code is made of them.
    numbers = relax.Var("image", image.ty)
    conv = lines.convolve(
        numbers, Call(call.op, [data, relax.const(integer_sums.constant_numbers(weights))], call.attrs)
    )
    if conv is None:
        return None
    kernel = constant(np.ascontiguousarray(weights.args[0].value.numpy()[:, :, None]))
    return rewriter.builder.normalize(conv), [image, rewriter.builder.normalize(_dequantize(kernel, weights))]


def _dequantize(value: Any, dequantize: Any) -> Any:
    """Return the dequantisation of an image of one row."""
    return relax.op.dequantize(value, *dequantize.args[1:], axis=int(dequantize.attrs.axis), out_dtype="float32")
