"""Bilinear resizing: whole rows are mixed first, then their pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import MEMORY_BOUND, Kernel, epilogue_store
from pipeline.executor.kernels.layout.channel_layout import ChannelLayout
from pipeline.executor.kernels.layout.expressions import FIRST, LAST, constant, is_static
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.tvm import statements as tir

MOST_SHRINKING = 2
"""Largest shrinking factor of columns. Beyond it most of a mixed row would not be read."""

_POSITIONS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


@dataclass(frozen=True)
class ResizeForm:
    """Extents of the data and the result, channels last."""

    batch: int
    height: int
    width: int
    channels: int
    out_height: int
    out_width: int

    @property
    def result(self) -> tuple[int, int, int, int]:
        """Shape of the result."""
        return self.batch, self.out_height, self.out_width, self.channels


class BilinearResize(Kernel[ResizeForm]):
    """Resizing of float32 images, by four static pixels per result."""

    name = "resize"
    operators = frozenset({"image.resize2d"})
    form = ResizeForm
    effort = MEMORY_BOUND

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match a bilinear resizing of channels-last data."""
        data, attrs = call.args[0], call.attrs
        mode = str(attrs.coordinate_transformation_mode)
        if str(attrs.layout) not in (FIRST, LAST) or attrs.method != "linear" or mode not in _POSITIONS:
            return None
        layout = ChannelLayout(str(attrs.layout) == FIRST)
        if not is_static(data, call) or any(str(value.ty.dtype) != "float32" for value in (data, call)):
            return None
        # Turned for it alone, an image would move twice more.
        if layout.first and not rewriter.is_last(data):
            return None
        batch, height, width, channels = layout.extents(data.ty)
        _, out_height, out_width, _ = layout.extents(call.ty)
        form = ResizeForm(batch, height, width, channels, out_height, out_width)
        if width > MOST_SHRINKING * out_width:
            return None
        tables = [*interpolation(height, out_height, mode), *interpolation(width, out_width, mode)]
        operands = [layout.source(rewriter, data), *map(constant, tables)]
        return layout.result(self.placeholder(rewriter.builder, form, operands, form.result))

    def write(self, group: FusedGroup, form: ResizeForm, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over the result's rows."""
        data, rows, row_shares, columns, column_shares = group.operands
        source, declare = tir.flat(data, "data", form.batch * form.height * form.width * form.channels)
        store, length = epilogue_store(group), form.width * form.channels

        def row(index: Any) -> Any:
            image, h = tir.unravel(index, (form.batch, form.out_height))
            line = tir.buffer("line", [length])
            starts = [(image * form.height + _position(rows, h, side)) * length for side in (0, 1)]

            def mix_rows(offset: Any, lanes: int) -> Any:
                top, bottom = (tir.load(source, tir.span(start + offset, lanes)) for start in starts)
                share = tir.wide(tir.load(row_shares, h), lanes)
                return tir.store(line, top + (bottom - top) * share, tir.span(offset, lanes))

            def pixel(w: Any) -> Any:
                left, right = (_position(columns, w, side) * form.channels for side in (0, 1))

                def channel(c: Any) -> Any:
                    first, second = tir.load(line, left + c), tir.load(line, right + c)
                    value = first + (second - first) * tir.load(column_shares, w)
                    return store(value, image, h, w, c)

                def channels(start: Any, lanes: int) -> Any:
                    return tir.loop("lane", lanes, lambda lane: channel(start + lane), tir.VECTORIZED)

                return tir.run(form.channels, cpu.lanes, channels)

            return tir.sequence(
                [tirx.AllocBuffer(line), tir.run(length, cpu.lanes, mix_rows), tir.loop("w", form.out_width, pixel)]
            )

        lines = tir.loop("row", form.batch * form.out_height, row, tir.parallel(tasks))
        return tir.sequence([declare, lines])

    def operations(self, form: ResizeForm) -> int:
        """Count three operations per element of mixed rows and results."""
        return 3 * form.batch * form.out_height * (form.width + form.out_width) * form.channels


def _position(table: Any, index: Any, side: int) -> Any:
    return tir.load(table, index, tir.number(side)).astype("int64")


def interpolation(extent: int, out_extent: int, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """Return two source positions per result, and the second's weight.

    Parameters
    ----------
    extent, out_extent : int
        Extents of the data and the result.
    mode : str
        ONNX's name of how positions of the result become positions in the data.
    """
    # In float32, as the operator is defined in other libraries: the share is that of a position that was rounded.
    steps, scale = np.arange(out_extent, dtype=np.float32), np.float32(extent / out_extent)
    half = np.float32(0.5)
    if mode == "align_corners":
        positions = steps * np.float32((extent - 1) / (out_extent - 1) if out_extent > 1 else 0)
    elif mode == "asymmetric":
        positions = steps * scale
    elif mode == "pytorch_half_pixel" and out_extent == 1:
        positions = np.zeros_like(steps)
    else:
        positions = (steps + half) * scale - half
    lower = np.floor(positions)
    neighbours = np.stack([lower, lower + 1], axis=1).clip(0, extent - 1).astype(np.int32)
    return neighbours, (positions - lower).astype(np.float32)
