"""Pooling: the largest element of each window, or the mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from pipeline.executor.schedules import anchors
from pipeline.executor.schedules.convolutions.rules import pair
from pipeline.executor.schedules.convolutions.windows import WindowKernel
from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.layout import images
from pipeline.executor.schedules.layout.rewriter import Rewriter
from pipeline.executor.schedules.layout.values import is_static, name_of
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.tiled.tiles import Window

LOWEST = -3.402823466e38
"""Below every finite float32, as a pooling's start."""


@dataclass(frozen=True)
class Pool:
    """A pooling: its window, and what it does with the elements."""

    window: Window
    kind: str
    include_pad: bool


def rule(rewriter: Rewriter, call: Any) -> Any:
    """Return the value of a pooling of float32, or of the largest of bytes."""
    data, lie = call.args[0], images.of(call)
    dtype, kind = str(data.ty.dtype), "max" if name_of(call) == "nn.max_pool2d" else "mean"
    if lie is None or not is_static(data, call) or (kind, dtype) not in _KNOWN:
        return None
    include, attrs = bool(call.attrs.count_include_pad), call.attrs
    batch, height, width, channels = lie.extents(data.ty)
    _, down, across, _ = lie.extents(call.ty)
    top, left, bottom, right = (int(each) for each in attrs.padding)
    window = Window(
        batch, height, width, channels, down, across, channels, pair(attrs.pool_size), pair(attrs.strides),
        pair(attrs.dilation), (top, left, bottom, right),
    )  # fmt: skip
    if kind == "mean" and (window.dilation != (1, 1) or (include and _leaves(window))):
        return None
    source = lie.source(rewriter, data)
    detail = Pool(window, kind, include)
    return lie.result(anchors.stand_in(rewriter.builder, "pool", detail, [source], window.made, dtype))


_KNOWN = {("max", "float32"), ("max", "uint8"), ("mean", "float32")}


def _leaves(window: Window) -> bool:
    """Whether the last window reaches beyond the padding."""
    top, left, bottom, right = window.pads
    return window.reach(0, window.out_height) > window.height + top + bottom or (
        window.reach(1, window.out_width) > window.width + left + right
    )


def statement(pool: Pool, machine: Machine, data: Any, store: Callable[..., Any], tasks: int) -> Any:
    """Return the whole computation; `store` makes the statement that stores a value at its indices."""
    if pool.kind == "max":
        lowest = LOWEST if str(data.dtype) == "float32" else 0
        return WindowKernel(
            pool.window, machine, data, lowest, lambda total, each, *_: tirx.Max(total, each), store, tasks
        ).statement()

    def mean(total: Any, image: Any, h: Any, w: Any, c: Any) -> Any:
        return store(total * _share(pool, h, w), image, h, w, c)

    return WindowKernel(pool.window, machine, data, 0.0, lambda total, each, *_: total + each, mean, tasks).statement()


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
