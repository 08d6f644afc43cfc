"""Arithmetic of tensors and numbers in PyTorch's promoted dtype."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from tvm import relax

from pipeline.frontends.torch.arguments import arguments

Binary = Callable[[Any, Any], Any]


def promote(importer: Any, node: Any, *values: Any) -> list[Any]:
    """Return the operands as tensors of the result's dtype."""
    # PyTorch has inferred it on export; its rules of promotion, also for bare numbers, need not be written again.
    dtype = _name(node.meta["val"].dtype)
    return [_cast(importer, operand, dtype) for operand in values]


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _cast(importer: Any, value: Any, dtype: str) -> Any:
    # A number has no dtype of its own: 1.5 added to float16 stays float16.
    if not isinstance(value, relax.Expr):
        return relax.const(value, dtype)
    return value if str(value.ty.dtype) == dtype else importer.block_builder.emit(relax.op.astype(value, dtype))


def _binary(operator: Binary, importer: Any, node: Any) -> Any:
    operands = arguments(importer, node)
    return operator(*promote(importer, node, *list(operands.values())[:2]))


def _compare(operator: Binary, importer: Any, node: Any) -> Any:
    """Return a comparison in its operands' promoted dtype."""
    dtype = _name(
        torch.result_type(*(getattr(argument, "meta", {}).get("val", argument) for argument in node.args[:2]))
    )
    operands = list(arguments(importer, node).values())[:2]
    return operator(*(_cast(importer, operand, dtype) for operand in operands))


def _sum(operator: Binary, importer: Any, node: Any) -> Any:
    """Return a sum with its factor, missing in TVM."""
    operands = arguments(importer, node)
    first, second = promote(importer, node, operands["self"], operands["other"])
    # TVM's converter of add and sub reads two operands only.
    if operands["alpha"] != 1:
        factor = relax.const(operands["alpha"], str(second.ty.dtype))
        second = importer.block_builder.emit(relax.op.multiply(second, factor))
    return operator(first, second)


def _divide(importer: Any, node: Any) -> Any:
    operands = arguments(importer, node)
    first, second = promote(importer, node, operands["self"], operands["other"])
    if operands["rounding_mode"] == "floor":
        return relax.op.floor_divide(first, second)
    quotient = relax.op.divide(first, second)
    # Relax's division of whole numbers truncates, which is the mode "trunc".
    if operands["rounding_mode"] is None or "int" in str(first.ty.dtype):
        return quotient
    return relax.op.trunc(importer.block_builder.emit(quotient))


def _power(importer: Any, node: Any) -> Any:
    if node.meta["val"].dtype.is_floating_point:
        return _binary(relax.op.power, importer, node)
    return importer.tvm_converters[node.target.__name__](node)


def _clamp(importer: Any, node: Any) -> Any:
    """Return ``clamp`` with an integer's own limits for infinities."""
    operands = arguments(importer, node)
    (data,) = promote(importer, node, operands["self"])
    # The lower bound first: where it is above the upper one, PyTorch returns the upper one.
    for name, operator in (("min", relax.op.maximum), ("max", relax.op.minimum)):
        if operands.get(name) is not None:
            (limit,) = promote(importer, node, operands[name])
            data = importer.block_builder.emit(operator(data, limit))
    return data


def _unary(importer: Any, node: Any) -> Any:
    """Return a function in fractions, also of integers. TVM computes it in integers."""
    # TVM's converter reads its operand from the table of values, where it is exchanged for the moment.
    argument, operand = node.args[0], importer.env[node.args[0]]
    importer.env[argument] = promote(importer, node, operand)[0]
    try:
        return importer.tvm_converters[node.target.__name__](node)
    finally:
        importer.env[argument] = operand


_FRACTIONS = (
    "acos acosh asin asinh atan atanh cos cosh erf exp expm1 log log10 log1p log2 reciprocal rsqrt sigmoid sin sinh "
    "sqrt tan tanh"
)


def _overloads(names: str, operator: Binary, convert: Callable[..., Any]) -> dict[str, Callable[[Any, Any], Any]]:
    return dict.fromkeys(names.split(), functools.partial(convert, operator))


CONVERTERS: dict[str, Callable[[Any, Any], Any]] = {
    **_overloads("add.Tensor add.Scalar", relax.op.add, _sum),
    **_overloads("sub.Tensor sub.Scalar", relax.op.subtract, _sum),
    **_overloads("rsub.Tensor rsub.Scalar", lambda first, second: relax.op.subtract(second, first), _sum),
    **_overloads("mul.Tensor mul.Scalar", relax.op.multiply, _binary),
    **_overloads("div.Tensor div.Scalar", relax.op.divide, _binary),
    **_overloads("maximum.default", relax.op.maximum, _binary),
    **_overloads("minimum.default", relax.op.minimum, _binary),
    **_overloads("remainder.Tensor remainder.Scalar", relax.op.floor_mod, _binary),
    **_overloads("fmod.Tensor fmod.Scalar", relax.op.mod, _binary),
    **_overloads("floor_divide.default", relax.op.floor_divide, _binary),
    **_overloads("atan2.default", relax.op.atan2, _binary),
    **_overloads("__lshift__.Scalar bitwise_left_shift.Tensor_Scalar", relax.op.left_shift, _binary),
    **_overloads("__rshift__.Scalar bitwise_right_shift.Tensor_Scalar", relax.op.right_shift, _binary),
    **_overloads("eq.Tensor eq.Scalar", relax.op.equal, _compare),
    **_overloads("ne.Tensor ne.Scalar", relax.op.not_equal, _compare),
    **_overloads("lt.Tensor lt.Scalar", relax.op.less, _compare),
    **_overloads("le.Tensor le.Scalar", relax.op.less_equal, _compare),
    **_overloads("gt.Tensor gt.Scalar", relax.op.greater, _compare),
    **_overloads("ge.Tensor ge.Scalar", relax.op.greater_equal, _compare),
    **{f"{name}.default": _unary for name in _FRACTIONS.split()},
    "clamp.Tensor": _clamp,
    "clamp.default": _clamp,
    "clamp_max.default": _clamp,
    "clamp_min.default": _clamp,
    "div.Tensor_mode": _divide,
    "pow.Scalar": _power,
    "pow.Tensor_Scalar": _power,
    "pow.Tensor_Tensor": _power,
}
