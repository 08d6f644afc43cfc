"""Remainders by powers of two, in a form left alone by LLVM 22.

Where LLVM makes vectors of a loop for AVX-512, it may take ``i % 4`` for ``i``, and read beyond the end.  It does so
only if it knows the divisor; a bit mask that it does not know costs as little.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

# It is 0 on x86, and an instruction as good as any until LLVM's last step, which is when it says so.
_UNKNOWN_ZERO = "llvm.get.dynamic.area.offset"


def masking() -> Any:
    """Return the pass that rewrites remainders."""
    return tirx.transform.prim_func_pass(lambda function, *_: mask(function), opt_level=0, name="MaskRemainders")


def mask(function: Any) -> Any:
    """Rewrite the remainders in a function's loops."""
    return function.with_body(tvm_ffi.structural_mutate(function.body, [(tirx.For, lambda loop, _: _mask_loop(loop))]))


def _mask_loop(loop: Any) -> Any:
    """Rewrite an outermost loop."""
    zero = tirx.Var("zero", "int64")
    count = 0

    def rewrite(remainder: Any, mutator: Any) -> Any:
        nonlocal count
        remainder = mutator.default_mutate(remainder)
        dtype, divisor = str(remainder.ty.dtype), remainder.b
        # Vectors are none of those that LLVM makes.
        if dtype not in {"int32", "int64"} or not isinstance(divisor, tirx.IntImm) or not _is_power(int(divisor)):
            return remainder
        count += 1
        return tirx.bitwise_and(remainder.a, tirx.IntImm(dtype, int(divisor) - 1) + zero.astype(dtype))

    loop = tvm_ffi.structural_mutate(loop, [(tirx.FloorMod, rewrite)])
    return tirx.SeqStmt([tirx.Bind(zero, tirx.call_llvm_pure_intrin("int64", _UNKNOWN_ZERO)), loop]) if count else loop


def _is_power(divisor: int) -> bool:
    return divisor > 1 and divisor & (divisor - 1) == 0
