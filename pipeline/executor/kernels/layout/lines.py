"""Lines: tensors (batch, channels, length) as images of one row."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.kernels.layout.expressions import constant, extents, is_static, name_of
from pipeline.executor.kernels.layout.layout_agnostic import ELEMENTWISE
from pipeline.executor.kernels.layout.rewriter import LineLayout, ModelLayout, Rewrite, Rewriter
from pipeline.model.passes.bindings import replace

# Axis of an image of one row, channels last, that an axis of batch, channels, length is.
_AXIS = {0: 0, 1: 3, 2: 2}
_IMAGES = {"data_layout": "NHWC", "out_layout": "NHWC"}


class Lines(Rewrite):
    """Windows over one axis, with their elementwise followers."""

    operators = frozenset({
        "nn.conv1d", "nn.conv1d_transpose", "nn.max_pool1d", "nn.avg_pool1d", *ELEMENTWISE, "concat",
    })  # fmt: skip

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Return the same on images of one row."""
        name = name_of(call)
        if name in ELEMENTWISE:
            return _elementwise(rewriter, call)
        if name == "concat":
            return _concat(rewriter, call)
        return self._window(rewriter, call)

    def _window(self, rewriter: Rewriter, call: Any) -> Any:
        data, attrs = call.args[0], call.attrs
        layout = str(attrs.layout if hasattr(attrs, "layout") else attrs.data_layout)
        # In other layouts, and where no kernel takes the image, it stays TVM's.
        if layout != "NCW" or not is_static(data, call) or str(data.ty.dtype) != "float32":
            return None
        image = rewriter.line(data)
        operation = _pooling(image, call) if name_of(call).endswith("pool1d") else convolve(image, call)
        if operation is None:
            return None
        value = rewriter.match(rewriter.builder.normalize(operation), self)
        return LineLayout(value.value) if isinstance(value, ModelLayout) else None


def convolve(image: Any, call: Any) -> Any:
    """Convolve an image of one row by constant weights, else None."""
    attrs, weights = call.attrs, call.args[1]
    if not isinstance(weights, GenericConst) or str(attrs.kernel_layout) not in ("OIW", "IOW"):
        return None
    window = {
        "strides": _pair(1, attrs.strides), "padding": _pads(attrs.padding), "dilation": _pair(1, attrs.dilation),
        "groups": int(attrs.groups), "kernel_layout": str(attrs.kernel_layout).replace("W", "HW"), **_IMAGES,
    }  # fmt: skip
    kernel = constant(np.ascontiguousarray(weights.value.numpy()[:, :, None]))
    if name_of(call) == "nn.conv1d":
        return relax.op.nn.conv2d(image, kernel, **window)
    window["output_padding"] = _pair(0, attrs.output_padding)
    return relax.op.nn.conv2d_transpose(image, kernel, **window)


def _pooling(image: Any, call: Any) -> Any:
    attrs = call.attrs
    operator = getattr(relax.op.nn, name_of(call).removeprefix("nn.").replace("1d", "2d"))
    return operator(
        image, _pair(1, attrs.pool_size), _pair(1, attrs.strides), _pads(attrs.padding), _pair(1, attrs.dilation),
        bool(attrs.ceil_mode), bool(attrs.count_include_pad), "NHWC", "NHWC",
    )  # fmt: skip


def _pair(height: int, values: Any) -> tuple[int, int]:
    """Return a one-axis window attribute for one-row images."""
    (value,) = values
    return height, int(value)


def _pads(values: Any) -> tuple[int, int, int, int]:
    left, right = (int(value) for value in values)
    return 0, left, 0, right


def _elementwise(rewriter: Rewriter, call: Any) -> Any:
    tensors = [argument for argument in call.args if isinstance(argument, relax.Var | GenericConst)]
    if not any(rewriter.is_line(tensor) for tensor in tensors) or not all(_fits(tensor) for tensor in tensors):
        return None
    return LineLayout(replace(call, lambda node: _operand(rewriter, node)))


def _fits(value: Any) -> bool:
    rank = getattr(value.ty, "ndim", -1)
    return rank == 3 or (isinstance(value, GenericConst) and 0 <= rank < 3)


def _operand(rewriter: Rewriter, value: Any) -> Any:
    """Return an operand broadcast against an image of one row."""
    if isinstance(value, relax.Var):
        return rewriter.line(value)
    if not isinstance(value, GenericConst):
        return value
    array = value.value.numpy()
    # One number is broadcast over any layout.
    if array.size == 1:
        return relax.const(array.reshape(()))
    line = array.reshape((1,) * (3 - array.ndim) + array.shape)
    return relax.const(np.ascontiguousarray(line.transpose(0, 2, 1)[:, None]))


def _concat(rewriter: Rewriter, call: Any) -> Any:
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
    if not any(rewriter.is_line(field) for field in fields) or not all(_is_line_var(field) for field in fields):
        return None
    return LineLayout(relax.op.concat([rewriter.line(field) for field in fields], _AXIS[int(call.attrs.axis) % 3]))


def _is_line_var(value: Any) -> bool:
    return isinstance(value, relax.Var) and is_static(value) and len(extents(value.ty)) == 3
