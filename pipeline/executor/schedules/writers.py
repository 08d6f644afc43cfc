"""Writers: the loops of each operator that has a kernel of its own, with what was fused to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
from tvm import tirx

from pipeline.executor.schedules import (
    batched,
    convolution,
    layer_norm,
    normalization,
    packing,
    phases,
    products,
    reductions,
    softmax,
    sums,
    tiles,
    tir,
    transposed,
    winograd,
    winograd_kernel,
)
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
    if rule in _LINE_OPERATIONS:
        kind, each = _LINE_OPERATIONS[rule]
        return int(msgspec.json.decode(detail, type=kind).lines.size) * each
    if rule in _COUNTED:
        return int(msgspec.json.decode(detail, type=_COUNTED[rule]).operations)
    window = (
        msgspec.json.decode(detail, type=Pool).window if rule == "pool" else msgspec.json.decode(detail, type=Window)
    )
    return window.operations // window.channels


def _tasks(fused: Fused, cores: int) -> int:
    """Return how many cores are worth being woken."""
    rule = fused.description.rule
    return max(1, min(cores, operations(fused) * _EFFORT.get(rule, 1) // ENOUGH))


def exact(fused: Fused, machine: Machine, cores: int) -> bool:
    """Whether a fused function computes each element once only."""
    kernels: dict[str, Callable[..., Any]] = {"convolution": _convolution_kernel, "winograd": _winograd_kernel}
    kernel = kernels.get(fused.description.rule)
    return kernel is not None and bool(kernel(fused, machine, _tasks(fused, cores)).exact)


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
        form = replace(form, window=form.window.flattened())

        def store(total: Any, _image: Any, pixel: Any, _w: Any, c: Any) -> Any:
            # Pixels lie side by side, so that counting on beyond a row's end finds the next row.
            indices = (tir.number(0), tir.number(0), pixel, c)
            return tir.store(fused.target, fused.value(total, indices), *indices)

        def touch(_image: Any, pixel: Any, _w: Any, c: Any) -> list[Any]:
            return fused.touched((tir.number(0), tir.number(0), pixel, c))

    elif form.window.pointwise:
        tile = tiles.with_vectors(form.window, machine, form.tile.vectors)
        form = replace(form, tile=tile)
    results = convolution.Results(store, touch, sums.line(str(fused.target.dtype)))
    return convolution.Kernel(form, machine, data, weights, results, tasks)


def _write_winograd(fused: Fused, machine: Machine, tasks: int) -> Any:
    return _winograd_kernel(fused, machine, tasks).statement()


def _winograd_kernel(fused: Fused, machine: Machine, tasks: int) -> winograd_kernel.WinogradKernel:
    form = msgspec.json.decode(fused.description.detail, type=winograd.Form)
    data, weights = fused.operands
    return winograd_kernel.WinogradKernel(form, machine, data, weights, _image_store(fused), tasks)


def _write_dense(fused: Fused, machine: Machine, tasks: int) -> Any:
    form = msgspec.json.decode(fused.description.detail, type=packing.Layout)
    outer = [int(extent) for extent in fused.target.shape[:-1]]
    joined = fused.pixelwise()

    def store(total: Any, _image: Any, row: Any, _w: Any, c: Any) -> Any:
        # Rows lie side by side, so that counting on beyond an axis' end finds the next ones.
        places = [tir.number(0)] * (len(outer) - 1) + [row] if joined else tir.places(row, outer)
        indices = (*places, c)
        return tir.store(fused.target, fused.value(total, indices), *indices)

    data, weights = fused.operands
    return convolution.Kernel(form, machine, data, weights, convolution.Results(store), tasks).statement()


def _write_product(fused: Fused, machine: Machine, tasks: int) -> Any:
    form = msgspec.json.decode(fused.description.detail, type=products.Product)
    left, right = fused.operands
    return batched.BatchedKernel(form, machine, left, right, _image_store(fused), tasks).statement()


def _write_transposed(fused: Fused, machine: Machine, tasks: int) -> Any:
    form = msgspec.json.decode(fused.description.detail, type=phases.Transposed)
    results = convolution.Results(_image_store(fused))
    data, weights = fused.operands
    return transposed.statement(form, machine, data, weights, results, tasks)


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
        lowest = LOWEST if str(fused.operands[0].dtype) == "float32" else 0
        return WindowKernel(
            pool.window, machine, fused.operands[0], lowest, lambda total, each, *_: tirx.Max(total, each), store, tasks
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


def _write_lines(fused: Fused, machine: Machine, tasks: int) -> Any:
    rule = fused.description.rule
    form = msgspec.json.decode(fused.description.detail, type=_LINE_OPERATIONS[rule][0])
    store = _image_store(fused)
    if rule == "layer_norm":
        return layer_norm.statement(form, machine, fused.operands, store, tasks)
    kind = softmax if rule == "softmax" else reductions
    return kind.statement(form, machine, fused.operands[0], store, tasks)


_LINE_OPERATIONS: dict[str, tuple[Any, int]] = {
    "reduction": (reductions.Reduction, 1),
    "softmax": (softmax.Softmax, 5),
    "layer_norm": (layer_norm.LayerNorm, 8),
}
"""What describes a kernel that works line by line, and its operations for each element."""

_EFFORT = dict.fromkeys(_LINE_OPERATIONS, 8)
"""Times that an operation takes longer than in a convolution, as the elements come from memory."""

# What describes rules whose operations are multiplications and additions.
_COUNTED: dict[str, Any] = {
    "convolution": packing.Layout,
    "dense": packing.Layout,
    "product": products.Product,
    "transposed": phases.Transposed,
    "winograd": winograd.Form,
}

_WRITERS: dict[str, Callable[[Fused, Machine, int], Any]] = {
    "convolution": _write_convolution,
    "winograd": _write_winograd,
    "dense": _write_dense,
    "product": _write_product,
    "transposed": _write_transposed,
    "depthwise": _write_depthwise,
    "pool": _write_pool,
    "normalization": _write_normalization,
    **dict.fromkeys(_LINE_OPERATIONS, _write_lines),
}
