"""Epilogue: fused followers of a kernel's sums, inserted at every store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi

from pipeline.executor.kernels.fused_elements import loads
from pipeline.tvm import statements as tir
from pipeline.tvm.objects import mutate


class Epilogue:
    """Statements for storing one element of the placeholder's result, `total`.

    Registers are read and written at `lane`. The last statement is the store; those before it fill registers. They load
    the values `loads`, and read the buffers `sources` at the element's own place; `size` is the nodes of the statement.
    """

    def __init__(
        self, total: Any, indices: Sequence[Any], lane: Any, registers: Sequence[Any], statements: Sequence[Any]
    ) -> None:
        self._total, self._indices, self._lane, self._registers = total, list(indices), lane, list(registers)
        self._statement = tir.sequence(statements)
        self.loads = loads(self._statement)
        self.size = _count_nodes(self._statement)
        self.sources = list(dict.fromkeys(load.source for load in self.loads if self.is_at(load.indices)))

    def is_at(self, indices: Sequence[Any]) -> bool:
        """Test if these are exactly the element's indices."""
        return len(indices) == len(self._indices) and all(
            index.same_as(variable) for index, variable in zip(indices, self._indices, strict=True)
        )

    def at(self, total: Any, indices: Sequence[Any]) -> Any:
        """Return the statement for a value and its place."""
        values = {self._total: total, **dict(zip(self._indices, indices, strict=True))}
        allocations = list[Any]()
        for register in self._registers:
            values[register], values[self._lane], allocation = tir.register(str(register.dtype))
            allocations += allocation

        def begin(statement: Any, mutator: Any) -> Any:
            # Variables are replaced without a call back into Python for each.
            for var, value in values.items():
                mutator.var_remap_set(var, value)
            return mutator.default_mutate(statement)

        statement = mutate(self._statement, [(type(self._statement), begin)])
        return tir.sequence([*allocations, *tir.statements(statement)])


def _count_nodes(statement: Any) -> int:
    count = 0

    def step(_: Any) -> None:
        nonlocal count
        count += 1

    tvm_ffi.structural_walk(statement, step)
    return count
