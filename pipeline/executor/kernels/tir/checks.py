"""Checks: statements that end a call before it uses an index or a divisor that it must not use.

A check in a kernel's outermost loop is done for a piece of that loop at a time: LLVM makes vectors of the check, and
the indices are in the first cache when the kernel reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tvm_ffi
from tvm import tirx
from tvm.ir import StringImm, TensorLoad, Var

from pipeline.executor.kernels.tir import statements as tir

PIECE = 64
"""Indices that are checked at once: some vectors."""


class Check(NamedTuple):
    """A value that stays below a limit in all turns of some loops, from the outermost in; both are unsigned.

    What is negative is above all limits then, so that one comparison does: of the largest value.
    """

    value: Any
    limit: Any
    loops: tuple[Any, ...]
    kind: str
    message: str

    @property
    def is_plain(self) -> bool:
        """Whether it reads nothing at an index that has to be checked itself."""
        return not any(loads(index) for load in loads(self.value) for index in load.indices)


def loads(expression: Any) -> list[Any]:
    """Return the elements that an expression reads."""
    elements: list[Any] = []

    def look(load: Any, mutator: Any) -> Any:
        elements.append(load)
        return mutator.default_mutate(load)

    tvm_ffi.structural_mutate(expression, [(TensorLoad, look)])
    return elements


def substitute(node: Any, values: Mapping[Any, Any]) -> Any:
    """Return an expression or a statement with values in place of variables."""
    return tvm_ffi.structural_mutate(node, [(Var, lambda var, _: values.get(var, var))])


def guard(statement: Any, checks: Sequence[Check]) -> Any:
    """Return a statement, which may be a loop, with the checks of what is used inside."""
    if not checks:
        return statement
    groups: list[list[Check]] = []
    for check in checks:
        # Indices that lie side by side are read once.
        if groups and check.is_plain and _are_same(check.loops, groups[-1][0].loops):
            groups[-1].append(check)
        else:
            groups.append([check])
    inside = [group for group in groups if _is_piecewise(statement, group[0])]
    front = [each for group in groups if group not in inside for each in _statements(group, group[0].loops)]
    return tir.sequence([*front, _in_pieces(statement, inside) if inside else statement])


def _are_same(loops: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(loops) == len(others) and all(a.loop_var.same_as(b.loop_var) for a, b in zip(loops, others, strict=True))


def _is_piecewise(statement: Any, check: Check) -> bool:
    # Of a loop that the cores share, nobody hears of an assertion.
    return (
        isinstance(statement, tirx.For)
        and statement.kind == tir.SERIAL
        and isinstance(statement.extent, tirx.IntImm)
        and bool(check.loops)
        and check.loops[0].loop_var.same_as(statement.loop_var)
    )


def _in_pieces(loop: Any, groups: Sequence[Sequence[Check]]) -> Any:
    """Return a loop over pieces of a loop, each behind its checks."""
    total, turns = int(loop.extent), max(_turns(group[0].loops[1:]) for group in groups)
    size = _divisor(total, max(1, PIECE // turns))
    dtype = loop.loop_var.ty.dtype
    piece = Var("piece", loop.loop_var.ty)
    shifted = tirx.For(
        loop.loop_var, loop.min + piece * tirx.const(size, dtype), tirx.const(size, dtype), loop.kind, loop.body
    )
    before = [each for group in groups for each in _statements(group, [shifted, *group[0].loops[1:]])]
    return tirx.For(
        piece, tirx.const(0, dtype), tirx.const(total // size, dtype), tir.SERIAL, tir.sequence([*before, shifted])
    )


def _turns(loops: Sequence[Any]) -> int:
    return math.prod(int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else PIECE for loop in loops)


def _divisor(total: int, target: int) -> int:
    """Return the smallest divisor of a number from a target on: pieces of one size need no conditions."""
    return next(size for size in range(min(target, total), total + 1) if total % size == 0)


def _statements(checks: Sequence[Check], loops: Sequence[Any]) -> list[Any]:
    """Return the statements that fail where one of some checks does, which are in the same loops."""
    zero = tir.number(0)
    worst = [tir.buffer("worst", [1], str(check.value.ty.dtype)) for check in checks]
    body = tir.sequence([
        tir.store(largest, tirx.Max(tir.load(largest, zero), check.value), zero)
        for largest, check in zip(worst, checks, strict=True)
    ])  # fmt: skip
    for loop in reversed(loops):
        fresh = Var(str(loop.loop_var.name), loop.loop_var.ty)
        body = tirx.For(fresh, loop.min, loop.extent, tir.SERIAL, substitute(body, {loop.loop_var: fresh}))
    begin = [
        statement
        for largest, check in zip(worst, checks, strict=True)
        for statement in (
            tirx.AllocBuffer(largest),
            tir.store(largest, tirx.const(0, str(check.value.ty.dtype)), zero),
        )
    ]
    return [
        *begin,
        body,
        *(_assertion(check, tir.load(largest, zero)) for largest, check in zip(worst, checks, strict=True)),
    ]


def _assertion(check: Check, largest: Any) -> Any:
    return tirx.AssertStmt(tirx.LT(largest, check.limit), StringImm(check.kind), [StringImm(check.message)])
