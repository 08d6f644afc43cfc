"""Arithmetic of tensors and numbers in PyTorch's promoted dtype."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from tvm import relax

from pipeline.frontends.torch.torch_call import Converter, TorchCall

Binary = Callable[[Any, Any], Any]


def promote(call: TorchCall, *values: Any) -> list[Any]:
    """Return the operands as tensors of the result's dtype."""
    # PyTorch has inferred it on export; its rules of promotion, also for bare numbers, need not be written again.
    dtype = _name(call.result.dtype)
    return [_cast(call, operand, dtype) for operand in values]


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _cast(call: TorchCall, value: Any, dtype: str) -> Any:
    # A number has no dtype of its own: 1.5 added to float16 stays float16.
    if not isinstance(value, relax.Expr):
        return relax.const(value, dtype)
    return value if str(value.ty.dtype) == dtype else call.emit(relax.op.astype(value, dtype))


def _binary(operator: Binary, call: TorchCall) -> Any:
    return operator(*promote(call, *list(call.operands.values())[:2]))


def _compare(operator: Binary, call: TorchCall) -> Any:
    """Return a comparison in its operands' promoted dtype."""
    dtype = _name(
        torch.result_type(*(getattr(argument, "meta", {}).get("val", argument) for argument in call.node.args[:2]))
    )
    operands = list(call.operands.values())[:2]
    return operator(*(_cast(call, operand, dtype) for operand in operands))


def _sum(operator: Binary, call: TorchCall) -> Any:
    """Return a sum with its factor, missing in TVM."""
    operands = call.operands
    first, second = promote(call, operands["self"], operands["other"])
    # TVM's converter of add and sub reads two operands only.
    if operands["alpha"] != 1:
        factor = relax.const(operands["alpha"], str(second.ty.dtype))
        second = call.emit(relax.op.multiply(second, factor))
    return operator(first, second)


def _divide(call: TorchCall) -> Any:
    operands = call.operands
    first, second = promote(call, operands["self"], operands["other"])
    if operands["rounding_mode"] == "floor":
        return relax.op.floor_divide(first, second)
    quotient = relax.op.divide(first, second)
    # Relax's division of whole numbers truncates, which is the mode "trunc".
    if operands["rounding_mode"] is None or "int" in str(first.ty.dtype):
        return quotient
    return relax.op.trunc(call.emit(quotient))


def _power(call: TorchCall) -> Any:
    if call.result.dtype.is_floating_point:
        return _binary(relax.op.power, call)
    return call.convert_by_tvm()


def _clamp(call: TorchCall) -> Any:
    """Return ``clamp`` with an integer's own limits for infinities."""
    (data,) = promote(call, call.operands["self"])
    # The lower bound first: where it is above the upper one, PyTorch returns the upper one.
    for name, operator in (("min", relax.op.maximum), ("max", relax.op.minimum)):
        if call.operands.get(name) is not None:
            (limit,) = promote(call, call.operands[name])
            data = call.emit(operator(data, limit))
    return data


def _unary(call: TorchCall) -> Any:
    """Return a function in fractions, also of integers. TVM computes it in integers."""
    # TVM's converter reads its operand from the table of values, where it is exchanged for the moment.
    argument, env = call.node.args[0], call.importer.env
    operand = env[argument]
    env[argument] = promote(call, operand)[0]
    try:
        return call.convert_by_tvm()
    finally:
        env[argument] = operand


_FRACTIONS = (
    "acos acosh asin asinh atan atanh cos cosh erf exp expm1 log log10 log1p log2 reciprocal rsqrt sigmoid sin sinh "
    "sqrt tan tanh"
)


def _overloads(names: str, operator: Binary, convert: Callable[..., Any]) -> dict[str, Converter]:
    return dict.fromkeys(names.split(), functools.partial(convert, operator))


CONVERTERS: dict[str, Converter] = {
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
