"""Checks: statements ending a call before an invalid index or divisor.

A check in a kernel's outermost loop is done for a piece of that loop at a time: LLVM makes vectors of the check, and
the indices are in the first cache when the kernel reads them.  Gathers of single elements take so little time that
their checks have to overlap with them: between two gathers, indices of the next piece are checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tvm import tirx
from tvm.ir import StringImm, TensorLoad, Var

from pipeline.tvm import statements as tir
from pipeline.tvm.objects import mutate

PIECE = 64
"""Indices that are checked at once: some vectors."""

AHEAD = 128
"""Indices checked ahead, among the turns of as many before them."""


class Check(NamedTuple):
    """Unsigned value below an unsigned limit, in all turns of its loops.

    As an unsigned number, a negative value is above all limits, so that one comparison does: of the largest value.
    """

    value: Any
    limit: Any
    loops: tuple[Any, ...]
    kind: str
    message: str

    @property
    def is_plain(self) -> bool:
        """True without reads at indices under check."""
        return not any(loads(index) for load in loads(self.value) for index in load.indices)


def loads(expression: Any) -> list[Any]:
    """Return the elements read by an expression."""
    elements: list[Any] = []

    def look(load: Any, mutator: Any) -> Any:
        elements.append(load)
        return mutator.default_mutate(load)

    mutate(expression, [(TensorLoad, look)])
    return elements


def substitute(node: Any, values: Mapping[Any, Any]) -> Any:
    """Substitute values for variables in an expression or statement."""
    return mutate(node, [(Var, lambda var, _: values.get(var, var))])


def guard(statement: Any, checks: Sequence[Check], *, gathers: bool) -> Any:
    """Return a statement, or loop, with the checks of its contents."""
    if not checks:
        return statement
    groups: list[list[Check]] = []
    for check in checks:
        # Indices that lie side by side are read once.
        if groups and check.is_plain and _are_same(check.loops, groups[-1][0].loops):
            groups[-1].append(check)
        else:
            groups.append([check])
    tests = [_Test(group, gathers) for group in groups]
    piecewise = [test for test in tests if _is_piecewise(statement, test.checks[0])]
    front = [step for test in tests if test not in piecewise for step in test.over(test.checks[0].loops)]
    if not piecewise:
        return tir.sequence([*front, statement])
    is_ahead = gathers and len(piecewise) == 1 and _is_gather(statement, piecewise[0].checks)
    return tir.sequence([*front, _in_pieces(statement, piecewise, is_ahead=is_ahead)])


class _Test:
    """Statements for checks sharing their loops.

    A register holds the largest value.  Where vectors of 64 bits have no maximum, it holds the bits of all values, and
    of their distances from the limit: it is negative if one of them is.
    """

    def __init__(self, checks: Sequence[Check], gathers: bool) -> None:
        self.checks = checks
        self._signs = [not gathers and _is_long(check) for check in checks]
        # Signed, since TVM takes differences of unsigned numbers for positive.
        self._registers = [
            tir.buffer("worst", [1], "int64" if is_sign else str(check.value.ty.dtype))
            for check, is_sign in zip(checks, self._signs, strict=True)
        ]

    def over(self, loops: Sequence[Any]) -> list[Any]:
        """Return statements failing where a check does, over some loops."""
        return [*self.allocations(), *self.clear(), self.look(loops), *self.fail()]

    def allocations(self) -> list[Any]:
        return [tirx.AllocBuffer(register) for register in self._registers]

    def clear(self) -> list[Any]:
        zero = tir.number(0)
        return [tir.store(register, tirx.const(0, str(register.dtype)), zero) for register in self._registers]

    def look(self, loops: Sequence[Any]) -> Any:
        body = tir.sequence(self.note({}))
        for loop in reversed(loops):
            variable = Var(str(loop.loop_var.name), loop.loop_var.ty)
            body = tirx.For(variable, loop.min, loop.extent, tir.SERIAL, substitute(body, {loop.loop_var: variable}))
        return body

    def note(self, positions: Mapping[Any, Any]) -> list[Any]:
        """Return statements recording the values at some loop places."""
        zero, steps = tir.number(0), []
        for check, register, is_sign in zip(self.checks, self._registers, self._signs, strict=True):
            value, previous = substitute(check.value, positions), tir.load(register, zero)
            if is_sign:
                value = value.astype("int64")
                # Of the other bits alone: no difference may overflow.
                distance = check.limit.astype("int64") - 1 - tirx.bitwise_and(value, tirx.const(2**63 - 1, "int64"))
                value = tirx.bitwise_or(value, distance)
            steps.append(tir.store(register, (tirx.bitwise_or if is_sign else tirx.Max)(previous, value), zero))
        return steps

    def fail(self) -> list[Any]:
        steps = []
        for check, register, is_sign in zip(self.checks, self._registers, self._signs, strict=True):
            value = tir.load(register, tir.number(0))
            passes = value >= 0 if is_sign else tirx.LT(value, check.limit)
            steps.append(tirx.AssertStmt(passes, StringImm(check.kind), [StringImm(check.message)]))
        return steps


def _is_long(check: Check) -> bool:
    return str(check.value.ty.dtype) == "uint64"


def _are_same(loops: Sequence[Any], other_loops: Sequence[Any]) -> bool:
    return len(loops) == len(other_loops) and all(
        a.loop_var.same_as(b.loop_var) for a, b in zip(loops, other_loops, strict=True)
    )


def _is_piecewise(statement: Any, check: Check) -> bool:
    # Of a loop that the cores share, nobody hears of an assertion.
    return (
        isinstance(statement, tirx.For)
        and statement.kind == tir.SERIAL
        and isinstance(statement.extent, tirx.IntImm)
        and bool(check.loops)
        and check.loops[0].loop_var.same_as(statement.loop_var)
    )


def _is_gather(loop: Any, checks: Sequence[Check]) -> bool:
    """Test for LLVM gathers: a load at a long index, stored in order."""
    nodes: list[Any] = []

    def look(node: Any, mutator: Any) -> Any:
        nodes.append(node)
        return mutator.default_mutate(node)

    mutate(loop.body, [(tirx.For, look), (tirx.BufferStore, look)])
    stores = [node for node in nodes if isinstance(node, tirx.BufferStore)]
    return (
        all(_is_long(check) and len(check.loops) == 1 for check in checks)
        and all(_turns([node]) == 1 for node in nodes if isinstance(node, tirx.For))
        and not any(loads(index) for store in stores for index in store.indices)
    )


def _in_pieces(loop: Any, tests: Sequence[_Test], *, is_ahead: bool) -> Any:
    """Loop over pieces with their checks in front, or a piece ahead."""
    total, turns = int(loop.extent), max(_turns(test.checks[0].loops[1:]) for test in tests)
    size = _size(total, AHEAD if is_ahead else max(1, PIECE // turns))
    count, dtype = -(-total // size), loop.loop_var.ty.dtype
    piece = Var("piece", loop.loop_var.ty)

    def part(index: Any, body: Any) -> Any:
        start = index * tirx.const(size, dtype)
        extent = tirx.const(size, dtype)
        if total % size:
            extent = tirx.Min(extent, tirx.const(total, dtype) - start)
        return tirx.For(loop.loop_var, loop.min + start, extent, loop.kind, body)

    def pieces(*body: Any) -> Any:
        extent = tirx.const(count, dtype)
        return tirx.For(piece, tirx.const(0, dtype), extent, tir.SERIAL, tir.sequence(body))

    if not is_ahead or count == 1:
        shifted = part(piece, loop.body)
        return pieces(*(step for test in tests for step in test.over([shifted, *test.checks[0].loops[1:]])), shifted)
    (test,) = tests
    # No more than a whole piece is left for the last one, and behind it there is none: these are looked at again.
    start = tirx.Min((piece + 1) * tirx.const(size, dtype), tirx.const(total - size, dtype))
    onward = start - piece * tirx.const(size, dtype)
    body = tir.sequence([loop.body, *test.note({loop.loop_var: loop.loop_var + onward})])
    first = test.look([part(tirx.const(0, dtype), loop.body)])
    begin = [*test.allocations(), *test.clear(), first]
    return tir.sequence([*begin, pieces(*test.fail(), *test.clear(), part(piece, body))])


def _turns(loops: Sequence[Any]) -> int:
    return math.prod(int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else PIECE for loop in loops)


def _size(total: int, target: int) -> int:
    """Return the least divisor from a target on, or the target."""
    sizes = range(min(target, total), min(4 * target, total) + 1)
    return next((size for size in sizes if total % size == 0), target)
