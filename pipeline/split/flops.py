"""Floating-point operations of a Relax operator, by its shapes."""

from __future__ import annotations

import math
from typing import Any

from pipeline.split.fusion import family
from pipeline.split.lines import kernel

_PER_INPUT = {"argmax", "argmin", "max", "mean", "min", "prod", "std", "sum", "variance"}
_PER_ELEMENT = {"elementwise": 1, "anchor": 5}


def flops(call: Any, kind: str, made: int) -> int:
    """Return the operations that one call performs; a multiply and an add count as two.

    Parameters
    ----------
    call : tvm.ir.Call
    kind : str
        The operator's name without its namespace.
    made : int
        Number of elements of the result.
    """
    if kernel(call) is not None:
        return made * _PER_ELEMENT.get(family(kind), 0)
    if kind.startswith("conv"):
        points = math.prod(_shape(call.args[0])) if kind.endswith("transpose") else made
        return 2 * points * math.prod(_shape(call.args[1])[1:])
    if kind == "matmul":
        return 2 * made * (_shape(call.args[0]) or (1,))[-1]
    if "pool" in kind and not kind.startswith("adaptive"):
        return made * math.prod(int(extent) for extent in call.attrs.pool_size)
    if kind in _PER_INPUT or kind.startswith("adaptive"):
        return math.prod(_shape(call.args[0]))
    return made * _PER_ELEMENT.get(family(kind), 0)


def _shape(expression: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in expression.ty.shape)
