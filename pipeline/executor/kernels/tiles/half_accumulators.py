"""Sums of float16 products: short in float16, combined in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from pipeline.executor.kernels.tiles.accumulators import TileAccumulators
from pipeline.executor.kernels.tiles.half_products import BLOCK
from pipeline.tvm import statements as tir


class HalfAccumulators(TileAccumulators):
    """Writes one tile with sums widened per block of terms."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        run, count, height = *self._run(), self._form.conv.kernel[0]
        totals = (run, run * count, run * count * height, self._form.conv.terms)
        # The outermost loop that has so few terms; 0 for a part of the innermost one.
        self._level = max((level for level, terms in enumerate(totals, 1) if terms <= BLOCK), default=0)
        self._is_whole = self._level == len(totals)
        lanes = self._form.lanes
        self.results = {key: tir.buffer("total", [lanes], "float32") for key in self.registers}

    def reset(self) -> list[Any]:
        """Set all sums to zero."""
        allocations = [tirx.AllocBuffer(result) for result in self.results.values()]
        zeros = [] if self._is_whole else [tir.store(result, tir.zeros(self._form.lanes), self._all)
                                           for result in self.results.values()]  # fmt: skip
        # Registers are for sums that are under way; what these are added to would take twice as many.
        fences = [] if self._is_whole else [tir.keep_in_memory(result) for result in self.results.values()]
        return [*super().reset(), *allocations, *fences, *zeros]

    def _turns(self, count: int, turn: Callable[[Any], Any]) -> list[Any]:
        """Return the innermost loop, in blocks if too long."""
        if self._level:
            return super()._turns(count, turn)
        longest = max(1, BLOCK // self._unroll)
        size = -(-count // -(-count // longest))

        def block(_: Any, start: Any, turns: int) -> Any:
            return self._block(tir.loop("terms", turns, lambda index: turn(start + index)))

        return tir.pieces("block", count, size, block)

    def _sum_up(self, level: int, statement: Any) -> Any:
        """Return a loop's statement, with block sums added at their end."""
        return self._block(statement) if level == self._level else statement

    def _block(self, statement: Any) -> Any:
        """Return a statement with local sums, added to the tile's."""
        clear = [] if self._is_whole else self._clear()
        return tir.sequence([*clear, statement, *(self._widen(key) for key in self.registers)])

    def _widen(self, key: tuple[int, int, int]) -> Any:
        total = tir.load(self.registers[key], self._all).astype(f"float32x{self._form.lanes}")
        if not self._is_whole:
            total = tir.load(self.results[key], self._all) + total
        return tir.store(self.results[key], total, self._all)
