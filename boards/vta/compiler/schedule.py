"""The schedule of a convolution: tiles through two slots of each scratchpad, each summed by one GEMM per step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from boards.vta.accesses import Access
from boards.vta.compiler.builder import Builder, span
from boards.vta.compiler.epilogue import Epilogue
from boards.vta.compiler.layers import Convolution
from boards.vta.compiler.packing import pack_weights
from boards.vta.compiler.slots import Slots
from boards.vta.compiler.tiles import DISTANCE, LISTS, SLOTS, Shape, Tile, field
from boards.vta.compiler.tiling import best
from boards.vta.config import Memory
from boards.vta.encoding import Uops, pack_uops
from boards.vta.instructions import Gemm


def convolution(builder: Builder, layer: Convolution, source: int, target: int) -> None:
    """Append a layer.

    Parameters
    ----------
    builder : Builder
        Where to.
    layer : Convolution
        What to compute.
    source, target : int
        Byte addresses of its packed input and result.
    """
    _Schedule(builder, layer, source, target).append()


class _Schedule:
    def __init__(self, builder: Builder, layer: Convolution, source: int, target: int) -> None:
        self.builder, self.layer, self.config = builder, layer, builder.config
        self.shape = Shape.of(self.config, layer)
        self.source = builder.element(Memory.INP, source)
        self.target = builder.element(Memory.OUT, target)
        self.weights = builder.element(Memory.WGT, builder.constant(pack_weights(self.config, layer.weights)))
        self.epilogue = Epilogue(builder, layer.ending)
        reserved = self.epilogue.reserved
        self.tiling = best(self.config, self.shape, reserved)
        self.acc = Slots(self.config.depth(Memory.ACC) - reserved.acc, SLOTS)
        self.inp = Slots(self.config.depth(Memory.INP) - reserved.inp, SLOTS)
        self.wgt = Slots(self.config.depth(Memory.WGT) - reserved.wgt, SLOTS)

    def append(self) -> None:
        """Append all tiles."""
        for number, tile in enumerate(self._tiles()):
            start, _ = self.acc.find(number)
            self.epilogue.begin(tile, start)
            for inputs in cut(self.shape.inputs[0], self.tiling.inputs):
                self._sum(tile, inputs, start)
            self.epilogue.finish(tile, start)
            self._store(tile, start)

    def _tiles(self) -> Iterator[Tile]:
        outputs = cut(self.shape.outputs[0], self.tiling.outputs)
        rows, columns = cut(self.shape.outputs[1], self.tiling.height), cut(self.shape.outputs[2], self.tiling.width)
        if self.tiling.outputs_first:
            yield from (Tile(*ranges) for ranges in product(outputs, rows, columns))
        else:
            yield from (Tile(own, *ranges) for *ranges, own in product(rows, columns, outputs))

    def _sum(self, tile: Tile, inputs: range, start: int) -> None:
        """Append the loads of some blocks of input channels, and their products."""
        rows, columns = field(self.shape, (len(tile.rows), len(tile.columns)))
        inp, there = self.inp.find((tile.rows, tile.columns, inputs))
        if not there:
            self._load_inputs(tile, inputs, inp)
        taps = self.shape.kernel[0] * self.shape.kernel[1]
        wgt, there = self.wgt.find((tile.outputs, inputs))
        if not there:
            own = len(inputs) * taps
            first = self.weights + (tile.outputs.start * self.shape.inputs[0] + inputs.start) * taps
            self.builder.load(Memory.WGT, wgt, first, (len(tile.outputs), own), self.shape.inputs[0] * taps)
        touched = (
            Access("INP", span(inp, len(inputs) * rows * columns), writes=False),
            Access("WGT", span(wgt, len(tile.outputs) * len(inputs) * taps), writes=False),
            Access("ACC", span(start, tile.count), writes=True),
        )
        for gemm in self._gemms(tile, len(inputs), (start, inp, wgt)):
            self.builder.compute(gemm, *touched)

    def _load_inputs(self, tile: Tile, inputs: range, start: int) -> None:
        _, height, width = self.shape.inputs
        size = field(self.shape, (len(tile.rows), len(tile.columns)))
        top = tile.rows.start * self.shape.strides[0] - self.layer.padding[0]
        left = tile.columns.start * self.shape.strides[1] - self.layer.padding[1]
        above, below = max(0, -top), max(0, top + size[0] - height)
        before, behind = max(0, -left), max(0, left + size[1] - width)
        inside = (size[0] - above - below, size[1] - before - behind)
        pads = {"y_pad_0": above, "y_pad_1": below, "x_pad_0": before, "x_pad_1": behind}
        for at, block in enumerate(inputs):
            first = self.source + (block * height + top + above) * width + left + before
            self.builder.load(Memory.INP, start + at * size[0] * size[1], first, inside, width, **pads)

    def _gemms(self, tile: Tile, inputs: int, starts: tuple[int, int, int]) -> Iterator[Gemm]:
        """Yield the products: in one instruction if enough micro-ops are between two with one destination."""
        rows, columns = field(self.shape, (len(tile.rows), len(tile.columns)))
        taps = self.shape.kernel[0] * self.shape.kernel[1]
        if len(tile.rows) * len(tile.outputs) >= DISTANCE:
            words = self._uops(tile, inputs, starts, (1, 0))
            begin = self.builder.uops(words)
            yield Gemm(
                uop_bgn=begin,
                uop_end=begin + len(words),
                iter_out=inputs,
                iter_in=len(tile.columns),
                dst_factor_in=1,
                src_factor_out=rows * columns,
                src_factor_in=self.shape.strides[1],
                wgt_factor_out=taps,
            )
            return
        # One list for all taps, or one for each, as the distance and the room in UOP allow.
        longest = self.config.depth(Memory.UOP) // LISTS
        step = tile.count * (max(1, longest // tile.count) if tile.count >= DISTANCE else 1)
        for block in range(inputs):
            words = self._uops(tile, inputs, starts, (len(tile.columns), block))
            for first in range(0, len(words), step):
                own = words[first : first + step]
                begin = self.builder.uops(own)
                yield Gemm(uop_bgn=begin, uop_end=begin + len(own))

    def _uops(self, tile: Tile, inputs: int, starts: tuple[int, int, int], part: tuple[int, int]) -> Uops:
        """Return a micro-op for each tap, row, column (of `part[0]`) and block of results, the last innermost."""
        own_columns, block = part
        rows, columns = field(self.shape, (len(tile.rows), len(tile.columns)))
        taps = self.shape.kernel[0] * self.shape.kernel[1]
        acc, inp, wgt = starts
        ranges = (*self.shape.kernel, len(tile.rows), own_columns, len(tile.outputs))
        y, x, row, column, output = (axis.reshape(-1) for axis in np.indices(ranges))
        dst = acc + output * tile.points + row * len(tile.columns) + column
        down, across = self.shape.strides
        src = inp + (block * rows + row * down + y) * columns + column * across + x
        weight = wgt + (output * inputs + block) * taps + y * self.shape.kernel[1] + x
        return pack_uops(self.config, dst, src, weight)

    def _store(self, tile: Tile, start: int) -> None:
        _, height, width = self.shape.outputs
        for at, block in enumerate(tile.outputs):
            first = self.target + (block * height + tile.rows.start) * width + tile.columns.start
            shape = (len(tile.rows), len(tile.columns))
            # Whole rows follow each other: one long burst instead of many short ones.
            shape = (1, tile.points) if shape[1] == width else shape
            self.builder.store(start + at * tile.points, first, shape, shape[1] if shape[0] == 1 else width)


def cut(extent: int, size: int) -> list[range]:
    """Return ranges of `size`, the last one of what is left."""
    return [range(start, min(start + size, extent)) for start in range(0, extent, size)]
