"""Schedule of a convolution: double-buffered tiles, one GEMM per step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from boards.vta.compiler.builder import ProgramBuilder, span
from boards.vta.compiler.epilogue import Epilogue
from boards.vta.compiler.layers import Convolution
from boards.vta.compiler.packing import pack_weights
from boards.vta.compiler.tiles import DISTANCE, LISTS, SLOTS, BlockedShape, OutputTile, ScratchpadSlots, field
from boards.vta.compiler.tiling import choose_tiling
from boards.vta.isa.config import MemoryType
from boards.vta.isa.encoding import Uops, pack_uops
from boards.vta.isa.instructions import Gemm
from boards.vta.simulator.accesses import Access


def append_convolution(builder: ProgramBuilder, layer: Convolution, source: int, target: int) -> None:
    """Append a layer; addresses of packed tensors are in bytes."""
    _ConvolutionSchedule(builder, layer, source, target).append()


class _ConvolutionSchedule:
    def __init__(self, builder: ProgramBuilder, layer: Convolution, source: int, target: int) -> None:
        self.builder, self.layer, self.config = builder, layer, builder.config
        self.shape = BlockedShape.of(self.config, layer)
        self.source = builder.element(MemoryType.INP, source)
        self.target = builder.element(MemoryType.OUT, target)
        self.weights = builder.element(MemoryType.WGT, builder.constant(pack_weights(self.config, layer.weights)))
        self.epilogue = Epilogue(builder, layer.requantization)
        # The epilogue first: its constants take the ends of the scratchpads, and tiles share what is left.
        constants = self.epilogue.reservation
        self.tiling = choose_tiling(self.config, self.shape, constants)
        self.acc = ScratchpadSlots(self.config.depth(MemoryType.ACC) - constants.acc, SLOTS)
        self.inp = ScratchpadSlots(self.config.depth(MemoryType.INP) - constants.inp, SLOTS)
        self.wgt = ScratchpadSlots(self.config.depth(MemoryType.WGT) - constants.wgt, SLOTS)

    def append(self) -> None:
        """Append all tiles."""
        for number, tile in enumerate(self._tiles()):
            start, _ = self.acc.find(number)
            self.epilogue.begin(tile, start)
            for inputs in cut_extent(self.shape.inputs[0], self.tiling.inputs):
                self._sum(tile, inputs, start)
            self.epilogue.finish(tile, start)
            self._store(tile, start)

    def _tiles(self) -> Iterator[OutputTile]:
        outputs = cut_extent(self.shape.outputs[0], self.tiling.outputs)
        rows, columns = (
            cut_extent(self.shape.outputs[1], self.tiling.height),
            cut_extent(self.shape.outputs[2], self.tiling.width),
        )
        # The innermost of both changes with each tile; the other one stays in its slots if its steps fit.
        if self.tiling.outputs_first:
            yield from (OutputTile(*ranges) for ranges in product(outputs, rows, columns))
        else:
            yield from (OutputTile(block_range, *ranges) for *ranges, block_range in product(rows, columns, outputs))

    def _sum(self, tile: OutputTile, inputs: range, start: int) -> None:
        """Append loads and products of some input channel blocks."""
        rows, columns = field(self.shape, (len(tile.rows), len(tile.columns)))
        inp, is_loaded = self.inp.find((tile.rows, tile.columns, inputs))
        if not is_loaded:
            self._load_inputs(tile, inputs, inp)
        taps = self.shape.kernel[0] * self.shape.kernel[1]
        wgt, is_loaded = self.wgt.find((tile.outputs, inputs))
        if not is_loaded:
            row_elements = len(inputs) * taps
            # A row for each block of outputs: its blocks of inputs, each with all taps, follow each other.
            first = self.weights + (tile.outputs.start * self.shape.inputs[0] + inputs.start) * taps
            self.builder.load(
                MemoryType.WGT, wgt, first, (len(tile.outputs), row_elements), self.shape.inputs[0] * taps
            )
        accesses = (
            Access("INP", span(inp, len(inputs) * rows * columns), writes=False),
            Access("WGT", span(wgt, len(tile.outputs) * len(inputs) * taps), writes=False),
            Access("ACC", span(start, tile.count), writes=True),
        )
        for gemm in self._gemms(tile, len(inputs), (start, inp, wgt)):
            self.builder.compute(gemm, *accesses)

    def _load_inputs(self, tile: OutputTile, inputs: range, start: int) -> None:
        _, height, width = self.shape.inputs
        size = field(self.shape, (len(tile.rows), len(tile.columns)))
        # A tile at the border begins in the padding, which a LOAD writes without reading it.
        first_row = tile.rows.start * self.shape.strides[0] - self.layer.padding[0]
        first_column = tile.columns.start * self.shape.strides[1] - self.layer.padding[1]
        pad_top, pad_bottom = max(0, -first_row), max(0, first_row + size[0] - height)
        pad_left, pad_right = max(0, -first_column), max(0, first_column + size[1] - width)
        loaded_shape = (size[0] - pad_top - pad_bottom, size[1] - pad_left - pad_right)
        pads = {"y_pad_0": pad_top, "y_pad_1": pad_bottom, "x_pad_0": pad_left, "x_pad_1": pad_right}
        for position, block in enumerate(inputs):
            first = self.source + (block * height + first_row + pad_top) * width + first_column + pad_left
            self.builder.load(MemoryType.INP, start + position * size[0] * size[1], first, loaded_shape, width, **pads)

    def _gemms(self, tile: OutputTile, inputs: int, starts: tuple[int, int, int]) -> Iterator[Gemm]:
        """Yield the products, in one instruction where hazards allow it."""
        rows, columns = field(self.shape, (len(tile.rows), len(tile.columns)))
        taps = self.shape.kernel[0] * self.shape.kernel[1]
        # Between two taps of one result are the rows and blocks of the tile: far enough for one loop over all.
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
        longest = self.config.depth(MemoryType.UOP) // LISTS
        step = tile.count * (max(1, longest // tile.count) if tile.count >= DISTANCE else 1)
        for block in range(inputs):
            words = self._uops(tile, inputs, starts, (len(tile.columns), block))
            for first in range(0, len(words), step):
                part = words[first : first + step]
                begin = self.builder.uops(part)
                yield Gemm(uop_bgn=begin, uop_end=begin + len(part))

    def _uops(self, tile: OutputTile, inputs: int, starts: tuple[int, int, int], part: tuple[int, int]) -> Uops:
        """Return micro-ops per tap, row, column and result block, innermost last."""
        uop_columns, block = part
        rows, columns = field(self.shape, (len(tile.rows), len(tile.columns)))
        taps = self.shape.kernel[0] * self.shape.kernel[1]
        acc, inp, wgt = starts
        ranges = (*self.shape.kernel, len(tile.rows), uop_columns, len(tile.outputs))
        # Results vary faster than taps, so that the same result comes back as late as possible.
        y, x, row, column, output = (axis.reshape(-1) for axis in np.indices(ranges))
        dst = acc + output * tile.points + row * len(tile.columns) + column
        row_stride, column_stride = self.shape.strides
        src = inp + (block * rows + row * row_stride + y) * columns + column * column_stride + x
        weight = wgt + (output * inputs + block) * taps + y * self.shape.kernel[1] + x
        return pack_uops(self.config, dst, src, weight)

    def _store(self, tile: OutputTile, start: int) -> None:
        _, height, width = self.shape.outputs
        for position, block in enumerate(tile.outputs):
            first = self.target + (block * height + tile.rows.start) * width + tile.columns.start
            shape = (len(tile.rows), len(tile.columns))
            # Whole rows follow each other: one long burst instead of many short ones.
            shape = (1, tile.points) if shape[1] == width else shape
            self.builder.store(start + position * tile.points, first, shape, shape[1] if shape[0] == 1 else width)


def cut_extent(extent: int, size: int) -> list[range]:
    """Divide an extent into ranges of `size` and a remainder."""
    return [range(start, min(start + size, extent)) for start in range(0, extent, size)]
