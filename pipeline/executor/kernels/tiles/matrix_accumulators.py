"""Sums of small matrix products: 2 pixels x 2 channels, eight bytes or four of bfloat16."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from pipeline.executor.kernels.tiles.accumulators import TileAccumulators
from pipeline.tvm import statements as tir

_LANES = 4
# Lanes of two registers, counted through, that make the lower and the upper halves of both.
_LOWER, _UPPER = (0, 1, 4, 5), (2, 3, 6, 7)


class MatrixAccumulators(TileAccumulators):
    """Writes one tile, with pixels in pairs.

    Until all is summed up, the registers of a pair have the lower and the upper channels of both pixels.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        pixels = list(dict.fromkeys((dy, dx) for dy, dx, _ in self.registers))
        self._pixels = pixels
        # The last one of an odd number is paired with itself, its second register is needed for a while only.
        self._pairs = [(pixels[index], pixels[min(index + 1, len(pixels) - 1)]) for index in range(0, len(pixels), 2)]
        self._spare = [
            tir.buffer("sum", [_LANES], self._arithmetic.dtype) for _ in range(self.tile.vectors * (len(pixels) % 2))
        ]

    def reset(self) -> list[Any]:
        """Set all sums to zero."""
        zeros = tir.vector(tirx.const(0, self._arithmetic.dtype), _LANES)
        allocations = [tirx.AllocBuffer(register) for register in self._spare]
        return [*allocations, *(tir.store(register, zeros, _ALL) for register in self._spare), *super().reset()]

    def finish(self) -> list[Any]:
        """Complete every register's sums of its pixel and vector."""
        statements = list[Any]()
        for pair in self._pairs:
            for part in range(self.tile.vectors):
                lower, upper = self._registers(pair, part)
                values = [tirx.Shuffle([tir.load(lower, _ALL), tir.load(upper, _ALL)], _indices(half))
                          for half in (_LOWER, _UPPER)]  # fmt: skip
                variables, bindings = tir.bind_values("sums", values, f"{self._arithmetic.dtype}x{_LANES}")
                statements += [*bindings, *(tir.store(register, variable, _ALL) for register, variable in
                                            zip((lower, upper), variables, strict=True))]  # fmt: skip
        return statements

    def _registers(self, pair: tuple[tuple[int, int], tuple[int, int]], part: int) -> tuple[Any, Any]:
        lower, upper = (self.registers[dy, dx, part] for dy, dx in pair)
        return lower, self._spare[part] if lower is upper else upper

    def _terms(self, data: Any, weights: Any, numbers: range, fetch: bool) -> list[Any]:  # noqa: ARG002
        """Multiply two or four terms of a run, all pixels."""
        source, strides = self._source, self._form.conv.strides
        starts = [
            data + (dy * strides[0] * source.line + dx * strides[1] * source.step + numbers.start)
            for dy, dx in self._pixels
        ]
        values = [tir.load(source.buffer, tir.ramp(start, len(numbers))) for start in starts]
        variables, statements = tir.bind_values("elements", values, f"int32x{len(numbers)}")
        elements = dict(zip(self._pixels, variables, strict=True))
        for term in range(0, len(numbers), 2):
            first_weight = weights + numbers[term] * self._step
            for pair in self._pairs:
                lanes = _indices([pixel * len(numbers) + term + lane for pixel in range(2) for lane in range(2)])
                rows = tirx.Shuffle([elements[pixel] for pixel in pair], lanes)
                statements += self._pair_products(rows, pair, first_weight)
        return statements

    def _pair_products(self, rows: Any, pair: tuple[tuple[int, int], tuple[int, int]], weights: Any) -> list[Any]:
        """Multiply eight bytes of two pixels with all channels."""
        statements = []
        for part in range(self.tile.vectors):
            for half, register in enumerate(self._registers(pair, part)):
                start = weights + (half * self._step + part * _LANES)
                columns = tir.load(self._weights, tir.ramp(start, _LANES))
                total = self._arithmetic.add(tir.load(register, _ALL), rows, columns, _LANES)
                statements.append(tir.store(register, total, _ALL))
        return statements


_ALL = tir.ramp(tir.number(0), _LANES)


def _indices(lanes: Any) -> list[Any]:
    return [tirx.IntImm("int32", lane) for lane in lanes]
