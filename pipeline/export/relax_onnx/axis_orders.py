"""Orders of axes: element-wise operators keep their operands' first order.

Layers of TFLite have their channels last, and convolutions of ONNX first.  The transposes between them vanish where
what stands between two convolutions takes the first one's order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.export.relax_onnx.tensors import Node, Tensor, constant

_FOLLOWERS = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Clip Cos
    Cosh DequantizeLinear Div Elu Equal Erf Exp Floor Greater GreaterOrEqual IsInf IsNaN LeakyRelu Less LessOrEqual Log
    Max Min Mod Mul Neg Not Or PRelu Pow QuantizeLinear Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Sqrt
    Sub Tan Tanh Where Xor
"""
FOLLOWERS = frozenset(_FOLLOWERS.split())
"""Element-wise operators of ONNX."""

Transposed = Mapping[tuple[Tensor, tuple[int, ...]], Tensor]
"""Transposed tensors by tensor and order of axes."""


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """Return the inverse of an order of axes."""
    return tuple(int(axis) for axis in np.argsort(order))


def find_order(inputs: Sequence[Tensor | None], rank: int, makers: Mapping[Tensor, Node]) -> tuple[int, ...] | None:
    """Return the order that an input's last transposition gave it."""
    for tensor in inputs:
        maker = None if tensor is None or len(tensor.shape) != rank else makers.get(tensor)
        if maker is not None and maker.kind == "Transpose":
            return tuple(maker.attributes["perm"])
    return None


def undo(inputs: Sequence[Tensor | None], order: tuple[int, ...], transposed: Transposed) -> list[Tensor | None] | None:
    """Return inputs before their transposition to `order`, or None."""
    back = inverse(order)
    results: list[Tensor | None] = []
    for tensor in inputs:
        result = tensor
        if tensor is not None and tensor.values is not None and len(order) >= tensor.values.ndim > 0:
            wide = tensor.values.reshape((1,) * (len(order) - tensor.values.ndim) + tensor.values.shape)
            result = tensor if tensor.values.size == 1 else constant(wide.transpose(back))
        elif tensor is not None and any(extent != 1 for extent in tensor.shape):
            result = transposed.get((tensor, back))
            if result is None:
                return None
        results.append(result)
    return results
