"""Remainders by powers of two, in a form left alone by LLVM 22, and quotients of narrow integers.

Where LLVM makes vectors of a loop for AVX-512, it may take ``i % 4`` for ``i``, and read beyond the end.  It does so
only if it knows the divisor; a bit mask that it does not know costs as little.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import prim

from pipeline.tvm.objects import mutate

# It is 0 on x86, and an instruction as good as any until LLVM's last step, which is when it says so.
_UNKNOWN_ZERO = "llvm.get.dynamic.area.offset"


def masking() -> Any:
    """Return the pass that rewrites remainders."""
    return tirx.transform.prim_func_pass(lambda function, *_: mask(function), opt_level=0, name="MaskRemainders")


def mask(function: Any) -> Any:
    """Rewrite the remainders in a function's loops."""
    return function.with_body(mutate(function.body, [(tirx.For, lambda loop, _: _mask_loop(loop))]))


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

    loop = mutate(loop, [(tirx.FloorMod, rewrite)])
    return tirx.SeqStmt([tirx.Bind(zero, tirx.call_llvm_pure_intrin("int64", _UNKNOWN_ZERO)), loop]) if count else loop


def _is_power(divisor: int) -> bool:
    return divisor > 1 and divisor & (divisor - 1) == 0


_DIVISIONS = (prim.expr.Div, prim.expr.Mod, prim.expr.FloorDiv, prim.expr.FloorMod)
_NARROW = {"int8", "int16"}


def widen_pass() -> Any:
    """Return the pass dividing in C's ``int``, truncated afterwards."""
    return tirx.transform.prim_func_pass(lambda function, *_: _widen(function), opt_level=0, name="WidenQuotients")


def _widen(function: Any) -> Any:
    def widen(division: Any, mutator: Any) -> Any:
        division = mutator.default_mutate(division)
        dtype = str(division.ty.dtype)
        # A constant divisor is an instruction or two of vectors, and never the fault.
        if dtype not in _NARROW or isinstance(division.b, tirx.IntImm):
            return division
        return type(division)(division.a.astype("int32"), division.b.astype("int32")).astype(dtype)

    return function.with_body(mutate(function.body, [(kind, widen) for kind in _DIVISIONS]))
