"""Writers: the loops of each operator that has a kernel of its own, with what was fused to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
from tvm import tirx

from pipeline.executor.schedules import convolution, normalization, packing, tiles, tir
from pipeline.executor.schedules.anchors import Fused
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.rules import Normalization, Pool
from pipeline.executor.schedules.tiles import Window
from pipeline.executor.schedules.windows import WindowKernel

ENOUGH = 500_000
"""Operations that take longer than to wake another core: a few microseconds."""

LOWEST = -3.402823466e38
"""Below every finite float32, as a pooling's start."""


def write(fused: Fused, machine: Machine, cores: int) -> Any:
    """Return the statement of a fused function."""
    return _WRITERS[fused.description.rule](fused, machine, _tasks(fused, cores))


def operations(fused: Fused) -> int:
    """Return the floating-point operations of the rule's own part; roughly, where it is not multiplications."""
    rule, detail = fused.description.rule, fused.description.detail
    if rule == "normalization":
        form = msgspec.json.decode(detail, type=Normalization)
        return math.prod(form.shape) * (form.size + 5)
    if rule in ("convolution", "dense"):
        return msgspec.json.decode(detail, type=packing.Layout).window.operations
    window = (
        msgspec.json.decode(detail, type=Pool).window if rule == "pool" else msgspec.json.decode(detail, type=Window)
    )
    return window.operations // window.channels


def _tasks(fused: Fused, cores: int) -> int:
    """Return how many cores are worth being woken."""
    return max(1, min(cores, operations(fused) // ENOUGH))


def exact(fused: Fused, machine: Machine, cores: int) -> bool:
    """Whether a fused function computes each element once only."""
    return fused.description.rule == "convolution" and _convolution_kernel(fused, machine, _tasks(fused, cores)).exact


def _image_store(fused: Fused) -> Callable[..., Any]:
    def store(total: Any, *indices: Any) -> Any:
        return tir.store(fused.target, fused.value(total, indices), *indices)

    return store


def _image_touch(fused: Fused) -> Callable[..., list[Any]]:
    return lambda *indices: fused.touched(indices)


def _write_convolution(fused: Fused, machine: Machine, tasks: int) -> Any:
    return _convolution_kernel(fused, machine, tasks).statement()


def _convolution_kernel(fused: Fused, machine: Machine, tasks: int) -> convolution.Kernel:
    form = msgspec.json.decode(fused.description.detail, type=packing.Layout)
    data, weights = fused.operands
    store, touch = _image_store(fused), _image_touch(fused)
    if form.window.pointwise and fused.pixelwise():
        form = packing.Layout(form.window.flattened(), form.tile, form.depth, form.lanes)

        def store(total: Any, _image: Any, pixel: Any, _w: Any, c: Any) -> Any:
            # Pixels lie side by side, so that counting on beyond a row's end finds the next row.
            indices = (tir.number(0), tir.number(0), pixel, c)
            return tir.store(fused.target, fused.value(total, indices), *indices)

        def touch(_image: Any, pixel: Any, _w: Any, c: Any) -> list[Any]:
            return fused.touched((tir.number(0), tir.number(0), pixel, c))

    elif form.window.pointwise:
        tile = tiles.with_vectors(form.window, machine, form.tile.vectors)
        form = packing.Layout(form.window, tile, form.depth, form.lanes)
    return convolution.Kernel(form, machine, data, weights, convolution.Results(store, touch), tasks)


def _write_dense(fused: Fused, machine: Machine, tasks: int) -> Any:
    form = msgspec.json.decode(fused.description.detail, type=packing.Layout)

    def store(total: Any, _image: Any, row: Any, _w: Any, c: Any) -> Any:
        return tir.store(fused.target, fused.value(total, (row, c)), row, c)

    data, weights = fused.operands
    return convolution.Kernel(form, machine, data, weights, convolution.Results(store), tasks).statement()


def _write_depthwise(fused: Fused, machine: Machine, tasks: int) -> Any:
    window = msgspec.json.decode(fused.description.detail, type=Window)
    data, weights = fused.operands

    def combine(total: Any, element: Any, down: Any, right: Any, c: Any, lanes: int) -> Any:  # noqa: PLR0913, PLR0917
        return total + element * tir.load(weights, down, right, c if lanes == 1 else tir.ramp(c, lanes))

    return WindowKernel(window, machine, data, 0.0, combine, _image_store(fused), tasks).statement()


def _write_pool(fused: Fused, machine: Machine, tasks: int) -> Any:
    pool = msgspec.json.decode(fused.description.detail, type=Pool)
    store = _image_store(fused)
    if pool.kind == "max":
        return WindowKernel(
            pool.window, machine, fused.operands[0], LOWEST, lambda total, each, *_: tirx.Max(total, each), store, tasks
        ).statement()

    def mean(total: Any, image: Any, h: Any, w: Any, c: Any) -> Any:
        return store(total * _share(pool, h, w), image, h, w, c)

    return WindowKernel(
        pool.window, machine, fused.operands[0], 0.0, lambda total, each, *_: total + each, mean, tasks
    ).statement()


def _share(pool: Pool, h: Any, w: Any) -> Any:
    """Return one divided by the number of elements that count."""
    window = pool.window
    if pool.include_pad or not window.padded:
        return tirx.FloatImm("float32", 1 / (window.kernel[0] * window.kernel[1]))
    counts = []
    for axis, index, size in ((0, h, window.height), (1, w, window.width)):
        start = index * window.strides[axis] - window.pads[axis]
        end = tirx.Min(start + window.kernel[axis], tir.number(size))
        counts.append(end - tirx.Max(start, tir.number(0)))
    return tirx.FloatImm("float32", 1.0) / (counts[0] * counts[1]).astype("float32")


def _write_normalization(fused: Fused, machine: Machine, tasks: int) -> Any:
    form = msgspec.json.decode(fused.description.detail, type=Normalization)
    return normalization.statement(form, machine, fused.operands[0], _image_store(fused), tasks)


_WRITERS: dict[str, Callable[[Fused, Machine, int], Any]] = {
    "convolution": _write_convolution,
    "dense": _write_dense,
    "depthwise": _write_depthwise,
    "pool": _write_pool,
    "normalization": _write_normalization,
}
