"""Bounds: checks on a frame's indices and divisors before kernels use them.

TVM's kernels check nothing: an index outside of its axis reads or writes foreign memory, and a whole number divided by
zero ends the process.  With a check the call fails, as one of the model's own runtime does, and the next one computes
as ever.  Indices that are constants, or that a kernel clips, need none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.ir import Call, GenericConst

from pipeline.errors import BuildError
from pipeline.executor.kernels import provenance
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tir.bound_search import BoundSearch, Limits

# `OpPatternKind.kOpaque` in TVM's op_attr_types.h.
_OPAQUE = 8
_WHOLE = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}


def separate_pass() -> Any:
    """Return the pass barring fusion: checked values must be arguments."""

    @tvm.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def run(module: Any, _: Any) -> Any:
        limits = _constant_limits(module)
        functions = {
            variable: function.with_attr("op_pattern", _OPAQUE)
            if isinstance(function, tirx.PrimFunc) and BoundSearch(function, "", limits.get(variable, {})).checks
            else function
            for variable, function in module.functions.items()
        }
        return tvm.IRModule(functions, attrs=module.attrs)

    return run


def guard_module(functions: Any, kernels: Any, cpu: Microarchitecture) -> Any:
    """Return a module of kernels behind their necessary checks.

    Functions are those before their loops were arranged; kernels have the same names, and the same parameters, or the
    first of them.
    """
    limits, results = _constant_limits(functions), provenance.result_names(functions)

    def guarded(variable: Any, kernel: Any) -> Any:
        if not isinstance(kernel, tirx.PrimFunc):
            return kernel
        name = str(variable.name_hint)
        return _guard(functions[variable], kernel, results.get(name) or name, limits.get(variable, {}), cpu)

    return tvm.IRModule(
        {variable: guarded(variable, kernel) for variable, kernel in kernels.functions.items()}, attrs=kernels.attrs
    )


def _constant_limits(module: Any) -> dict[Any, Limits]:
    """Return limits of constant integer arguments per function."""
    limits: dict[Any, Limits] = {}
    for binding in (binding for block in module["main"].body.blocks for binding in block.bindings):
        call = binding.value
        if not isinstance(call, Call) or not str(getattr(call.op, "name", "")).startswith("relax.call_tir"):
            continue
        pairs = {position: pair for position, value in enumerate(call.args[1].fields) if (pair := _limits_of(value))}
        earlier = limits.get(call.args[0], pairs)
        limits[call.args[0]] = {
            position: (min(low, earlier[position][0]), max(high, earlier[position][1]))
            for position, (low, high) in pairs.items()
            if position in earlier
        }
    return limits


def _limits_of(value: Any) -> tuple[int, int] | None:
    if not isinstance(value, GenericConst) or str(value.ty.dtype) not in _WHOLE:
        return None
    numbers = np.from_dlpack(value.value)
    return (int(numbers.min()), int(numbers.max())) if numbers.size else None


def _guard(function: Any, kernel: Any, description: str, limits: Limits, cpu: Microarchitecture) -> Any:
    """Return a function's kernel behind its checks."""
    if not BoundSearch(function, "", limits).checks:
        return kernel
    search = BoundSearch(kernel, description, limits, gathers=cpu.gathers)
    if not search.checks:
        raise BuildError(f"the indices or divisors of {description} cannot be checked")
    return tirx.PrimFunc(list(kernel.params), search.body).with_attr(
        {str(key): value for key, value in kernel.attrs.items()}
    )
