"""Quotients of narrow integers in 32 bits: int8 -128 / -1 traps on x86."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import prim

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

    return function.with_body(tvm_ffi.structural_mutate(function.body, [(kind, widen) for kind in _DIVISIONS]))
