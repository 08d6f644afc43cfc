"""Rounding: products unfused from a following sum."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx

_NAME = "soc.rounded"


def round_product(product: Any) -> Any:
    """Return a float32 product excluded from fused multiply-add.

    TVM lets LLVM contract ``a * b + c``, which then rounds once where ONNX rounds twice.
    """
    return tirx.call_intrin(str(product.ty.dtype), tvm.ir.Op.get(_NAME), product)


def _lower(call: Any) -> Any:
    return tirx.call_llvm_intrin(str(call.ty.dtype), "llvm.arithmetic.fence", call.args[0])


_pure = tvm.ir.Op.get("tirx.exp").get_attr("TCallEffectKind")
tvm.ir.register_op_attr(_NAME, "TCallEffectKind", _pure)
tvm.ir.register_op_attr(_NAME, "TVectorizable", True)
tvm.ir.register_op_attr(_NAME, "llvm.FLowerIntrinsic", _lower)
