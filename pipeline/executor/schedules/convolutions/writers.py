"""Writers of convolutions, also by transformed tiles, by channel and transposed, and of pooling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipeline.executor.schedules.anchors import Fused
from pipeline.executor.schedules.convolutions import convolution, phases, pooling, transposed
from pipeline.executor.schedules.convolutions.pooling import Pool
from pipeline.executor.schedules.convolutions.windows import WindowKernel
from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.tiled import packing, sums, tiles
from pipeline.executor.schedules.tiled.tiles import Window
from pipeline.executor.schedules.winograd import kernel as transformed
from pipeline.executor.schedules.winograd import winograd
from pipeline.executor.schedules.writer import Writer, store


def _convolution(fused: Fused, form: packing.Layout, machine: Machine, tasks: int) -> convolution.Kernel:
    data, weights = fused.operands
    stored, touch = store(fused), _touch(fused)
    if form.window.pointwise and fused.pixelwise():
        form = replace(form, window=form.window.flattened())

        def stored(total: Any, _image: Any, pixel: Any, _w: Any, c: Any) -> Any:
            # Pixels lie side by side, so that counting on beyond a row's end finds the next row.
            indices = (tir.number(0), tir.number(0), pixel, c)
            return tir.store(fused.target, fused.value(total, indices), *indices)

        def touch(_image: Any, pixel: Any, _w: Any, c: Any) -> list[Any]:
            return fused.touched((tir.number(0), tir.number(0), pixel, c))

    elif form.window.pointwise:
        tile = tiles.with_vectors(form.window, machine, form.tile.vectors)
        form = replace(form, tile=tile)
    results = convolution.Results(stored, touch, sums.line(str(fused.target.dtype)))
    return convolution.Kernel(form, machine, data, weights, results, tasks)


def _touch(fused: Fused) -> Any:
    return lambda *indices: fused.touched(indices)


def _winograd(fused: Fused, form: winograd.Form, machine: Machine, tasks: int) -> transformed.WinogradKernel:
    data, weights = fused.operands
    return transformed.WinogradKernel(form, machine, data, weights, store(fused), tasks)


def _transposed(fused: Fused, form: phases.Transposed, machine: Machine, tasks: int) -> Any:
    data, weights = fused.operands
    return transposed.statement(form, machine, data, weights, convolution.Results(store(fused)), tasks)


def _by_channel(fused: Fused, window: Window, machine: Machine, tasks: int) -> Any:
    data, weights = fused.operands

    def combine(total: Any, element: Any, down: Any, right: Any, c: Any, lanes: int) -> Any:  # noqa: PLR0913, PLR0917
        return total + element * tir.load(weights, down, right, tir.span(c, lanes))

    return WindowKernel(window, machine, data, 0.0, combine, store(fused), tasks).statement()


def _pool(fused: Fused, pool: Pool, machine: Machine, tasks: int) -> Any:
    return pooling.statement(pool, machine, fused.operands[0], store(fused), tasks)


def _terms(window: Window) -> int:
    """Return the operations of a window that mixes no channels."""
    return window.operations // window.channels


WRITERS = {
    "convolution": Writer(
        packing.Layout,
        lambda *given: _convolution(*given).statement(),
        exact=lambda *given: _convolution(*given).exact,
    ),
    "winograd": Writer(
        winograd.Form, lambda *given: _winograd(*given).statement(), exact=lambda *given: _winograd(*given).exact
    ),
    "transposed": Writer(phases.Transposed, _transposed),
    "depthwise": Writer(Window, _by_channel, _terms),
    "pool": Writer(Pool, _pool, lambda pool: _terms(pool.window)),
}
