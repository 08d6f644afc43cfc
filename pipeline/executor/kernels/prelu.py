"""PReLU as elementwise operators, fused into the kernel before it."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.kernels.layout.expressions import AXIS, is_static
from pipeline.executor.kernels.layout.rewriter import LineLayout, ModelLayout, Rewrite, Rewriter


class PRelu(Rewrite):
    """ReLU with a negative slope per channel."""

    operators = frozenset({"nn.prelu"})

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Return max(x, 0) + slope * min(x, 0)."""
        # TVM's own operator goes over the memory once more.
        data, slopes = call.args
        if not isinstance(slopes, GenericConst) or not is_static(data):
            return None
        axis, values = int(call.attrs.axis) % data.ty.ndim, slopes.value.numpy().reshape(-1)
        if rewriter.is_last(data):
            return _activation(rewriter, rewriter.last(data), values, AXIS[axis])
        if rewriter.is_line(data) and axis == 1:
            return LineLayout(_activation(rewriter, rewriter.line(data), values, 3))
        return ModelLayout(_activation(rewriter, rewriter.plain(data), values, axis))


def _activation(rewriter: Rewriter, data: Any, slopes: np.ndarray, axis: int) -> Any:
    zero = relax.const(np.zeros((), slopes.dtype))
    shape = [1] * data.ty.ndim
    shape[axis] = slopes.size
    below = rewriter.builder.emit(relax.op.minimum(data, zero))
    below = rewriter.builder.emit(relax.op.multiply(below, relax.const(slopes.reshape(shape))))
    return relax.op.add(rewriter.builder.emit(relax.op.maximum(data, zero)), below)
