"""Bilinear resizing: whole rows are mixed first, then their pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import MEMORY_BOUND, Kernel, epilogue_store
from pipeline.executor.kernels.layout.channel_layout import ChannelLayout
from pipeline.executor.kernels.layout.expressions import FIRST, LAST, constant, is_static, name_of
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.model import byte_resizing
from pipeline.model.byte_resizing import Resampling
from pipeline.model.passes.bindings import form_of
from pipeline.tvm import statements as tir

MOST_SHRINKING = 2
"""Largest shrinking factor of columns. Beyond it most of a mixed row would not be read."""

_REALS = Resampling(
    "float32",
    1,
    lambda top, bottom, share: [top + (bottom - top) * share],
    lambda left, right, share: left[0] + (right[0] - left[0]) * share,
)
_RESAMPLINGS = {"float32": _REALS, **byte_resizing.RESAMPLINGS}

_POSITIONS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


@dataclass(frozen=True)
class ResizeForm:
    """Extents of the data and the result, channels last, and their dtype."""

    batch: int
    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    dtype: str = "float32"

    @property
    def result(self) -> tuple[int, int, int, int]:
        """Shape of the result."""
        return self.batch, self.out_height, self.out_width, self.channels


class BilinearResize(Kernel[ResizeForm]):
    """Resizing by four static pixels per result: of float32, and of bytes as importers state it."""

    name = "resize"
    operators = frozenset({"image.resize2d", "call_tir"})
    form = ResizeForm
    effort = MEMORY_BOUND

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match a bilinear resizing of channels-last data."""
        if name_of(call) == "call_tir":
            return self._match_bytes(rewriter, call)
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
        form = _form(layout, data, call)
        tables = [*interpolation(form.height, form.out_height, mode), *interpolation(form.width, form.out_width, mode)]
        return self._placeholder(rewriter, layout, form, data, [constant(table) for table in tables])

    def _match_bytes(self, rewriter: Rewriter, call: Any) -> Any:
        if form_of(call).get("kind") != byte_resizing.KIND:
            return None
        data, *tables = call.args[1].fields
        layout = ChannelLayout(first=False)
        return self._placeholder(rewriter, layout, _form(layout, data, call), data, tables)

    def _placeholder(self, rewriter: Rewriter, layout: ChannelLayout, form: ResizeForm, data: Any, tables: Any) -> Any:
        if form.width > MOST_SHRINKING * form.out_width:
            return None
        operands = [layout.source(rewriter, data), *tables]
        return layout.result(self.placeholder(rewriter.builder, form, operands, form.result, form.dtype))

    def write(self, group: FusedGroup, form: ResizeForm, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over the result's rows."""
        data, rows, row_shares, columns, column_shares = group.operands
        size = form.batch * form.height * form.width * form.channels
        source, declare = tir.flat(data, "data", size, form.dtype)
        store, length, resampling = epilogue_store(group), form.width * form.channels, _RESAMPLINGS[form.dtype]

        def row(index: Any) -> Any:
            image, h = tir.unravel(index, (form.batch, form.out_height))
            lines = [tir.buffer("line", [length], resampling.dtype) for _ in range(resampling.lines)]
            starts = [(image * form.height + _position(rows, h, side)) * length for side in (0, 1)]

            def mix_rows(offset: Any) -> Any:
                top, bottom = (tir.load(source, start + offset) for start in starts)
                values = resampling.mix_rows(top, bottom, tir.load(row_shares, h))
                return tir.sequence(list(map(tir.store, lines, values, [offset] * len(lines))))

            def pixel(w: Any) -> Any:
                starts = [_position(columns, w, side) * form.channels for side in (0, 1)]

                def channel(c: Any) -> Any:
                    left, right = ([tir.load(line, start + c) for line in lines] for start in starts)
                    value = resampling.mix_columns(left, right, tir.load(column_shares, w))
                    return store(value, image, h, w, c)

                return _vectors(form.channels, cpu.lanes, channel)

            loops = [_vectors(length, cpu.lanes, mix_rows), tir.loop("w", form.out_width, pixel)]
            return tir.sequence([*map(tirx.AllocBuffer, lines), *loops])

        return tir.sequence([declare, tir.loop("row", form.batch * form.out_height, row, tir.parallel(tasks))])

    def operations(self, form: ResizeForm) -> int:
        """Count three operations per element of mixed rows and results."""
        return 3 * form.batch * form.out_height * (form.width + form.out_width) * form.channels


def _form(layout: ChannelLayout, data: Any, result: Any) -> ResizeForm:
    _, out_height, out_width, _ = layout.extents(result.ty)
    return ResizeForm(*layout.extents(data.ty), out_height, out_width, str(data.ty.dtype))


def _vectors(length: int, lanes: int, element: Callable[[Any], Any]) -> Any:
    """Return the loops over elements; the last vector overlaps, as far as it is no part of one."""

    def step(start: Any, count: int) -> Any:
        size = min(lanes, 1 << (count - 1).bit_length())
        start, size = (tir.number(length - size), size) if count < size <= length else (start, count)
        return tir.loop("lane", size, lambda lane: element(start + lane), tir.VECTORIZED)

    return tir.run(length, lanes, step)


def _position(table: Any, index: Any, side: int) -> Any:
    return tir.load(table, index, tir.number(side)).astype("int64")


def interpolation(extent: int, out_extent: int, mode: str) -> tuple[np.ndarray, np.ndarray]:
    """Return two source positions per result, and the second's weight.

    `mode` is ONNX's name of how positions of the result become positions in the data.
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
