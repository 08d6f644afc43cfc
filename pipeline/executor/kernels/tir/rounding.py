"""Rounding: products unfused from a following sum, or fused with it for sure."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

_NAME, _TWO_PRODUCTS = "soc.rounded", "soc.two_products"


def round_product(product: Any) -> Any:
    """Return a float32 product excluded from fused multiply-add.

    TVM lets LLVM contract ``a * b + c``, which then rounds once where ONNX rounds twice.
    """
    return tirx.call_intrin(str(product.ty.dtype), tvm.ir.Op.get(_NAME), product)


def add_products(number: Any, factor: float, smaller: float) -> Any:
    """Return ``number * factor + number * smaller``, rounded once but for the smaller product."""
    factors = [tirx.FloatImm("float32", value) for value in (factor, smaller)]
    return tirx.call_intrin("float32", tvm.ir.Op.get(_TWO_PRODUCTS), number, *factors)


def _lower_products(call: Any) -> Any:
    dtype = str(call.ty.dtype)
    # Behind all passes that would copy what the number is computed from.
    number, (value, factor, smaller) = tirx.Var("number", dtype), call.args
    return tirx.Let(number, value, tirx.call_llvm_intrin(dtype, "llvm.fma", number, factor, number * smaller))


def _lower(call: Any) -> Any:
    return tirx.call_llvm_intrin(str(call.ty.dtype), "llvm.arithmetic.fence", call.args[0])


_pure = tvm.ir.Op.get("tirx.exp").get_attr("TCallEffectKind")
for _name, _lowering in ((_NAME, _lower), (_TWO_PRODUCTS, _lower_products)):
    tvm.ir.register_op_attr(_name, "TCallEffectKind", _pure)
    tvm.ir.register_op_attr(_name, "TVectorizable", True)
    tvm.ir.register_op_attr(_name, "llvm.FLowerIntrinsic", _lowering)
