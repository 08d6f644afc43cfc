"""Quotients of narrow integers in 32 bits: int8 -128 / -1 traps on x86."""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import prim

_DIVISIONS = (prim.expr.Div, prim.expr.Mod, prim.expr.FloorDiv, prim.expr.FloorMod)
_NARROW = {"int8", "int16"}


def widen_pass() -> Any:
    """Return the pass dividing in C's ``int``, truncated afterwards."""

    @tvm.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def run(module: Any, _: Any) -> Any:
        functions = {
            name: _widen(function) if isinstance(function, tirx.PrimFunc) else function
            for name, function in module.functions.items()
        }
        return tvm.IRModule(functions, attrs=module.attrs)

    return run


def _widen(function: Any) -> Any:
    def widen(division: Any, mutator: Any) -> Any:
        division = mutator.default_mutate(division)
        dtype = str(division.ty.dtype)
        # A constant divisor is an instruction or two of vectors, and never the fault.
        if dtype not in _NARROW or isinstance(division.b, tirx.IntImm):
            return division
        return type(division)(division.a.astype("int32"), division.b.astype("int32")).astype(dtype)

    body = tvm_ffi.structural_mutate(function.body, [(kind, widen) for kind in _DIVISIONS])
    return tirx.PrimFunc(list(function.params), body).with_attr(
        {str(key): value for key, value in function.attrs.items()}
    )
