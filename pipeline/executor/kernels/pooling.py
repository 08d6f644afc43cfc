"""Pooling: maximum or mean of every window."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import Kernel, epilogue_store
from pipeline.executor.kernels.layout import channel_layout
from pipeline.executor.kernels.layout.channel_layout import ChannelLayout
from pipeline.executor.kernels.layout.expressions import is_static, name_of
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.sliding_window import SlidingWindowLoops
from pipeline.tvm import statements as tir

LOWEST = -3.402823466e38
"""Lowest finite float32, as a pooling's start."""

_SUPPORTED = {("max", "float32"), ("max", "int8"), ("max", "uint8"), ("mean", "float32")}


@dataclass(frozen=True)
class PoolForm:
    """Window, ``"max"`` or ``"mean"``, and whether padding counts."""

    conv: ConvShape
    kind: str
    include_pad: bool


class Pooling(Kernel[PoolForm]):
    """Pooling over height and width."""

    name = "pool"
    operators = frozenset({"nn.max_pool2d", "nn.avg_pool2d"})
    form = PoolForm

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match a float32 pooling, or a byte maximum."""
        data, layout = call.args[0], channel_layout.layout_of_call(call)
        dtype, kind = str(data.ty.dtype), "max" if name_of(call) == "nn.max_pool2d" else "mean"
        if layout is None or not is_static(data, call) or (kind, dtype) not in _SUPPORTED:
            return None
        include_pad, conv = bool(call.attrs.count_include_pad), _window(layout, call)
        # Beyond the padding nothing counts, which is no share that is known for all windows.
        if kind == "mean" and (conv.dilation != (1, 1) or (include_pad and _exceeds_padding(conv))):
            return None
        source = layout.source(rewriter, data)
        form = PoolForm(conv, kind, include_pad)
        return layout.result(self.placeholder(rewriter.builder, form, [source], conv.result, dtype))

    def write(self, group: FusedGroup, form: PoolForm, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over windows."""
        data, store = group.operands[0], epilogue_store(group)
        if form.kind == "max":
            # Bytes start from their lowest value.
            lowest = {"float32": LOWEST, "int8": -128, "uint8": 0}[str(data.dtype)]
            return SlidingWindowLoops(form.conv, cpu, data, lowest, tirx.Max, store, tasks).statement()

        def store_mean(total: Any, image: Any, h: Any, w: Any, c: Any) -> Any:
            return store(total * _share(form, h, w), image, h, w, c)

        return SlidingWindowLoops(form.conv, cpu, data, 0.0, operator.add, store_mean, tasks).statement()

    def operations(self, form: PoolForm) -> int:
        """Count two operations for each element of a window."""
        return form.conv.window_operations


def _window(layout: ChannelLayout, call: Any) -> ConvShape:
    attrs = call.attrs
    batch, height, width, channels = layout.extents(call.args[0].ty)
    _, out_height, out_width, _ = layout.extents(call.ty)
    pad_top, pad_left, pad_bottom, pad_right = (int(pad) for pad in attrs.padding)
    return ConvShape(
        batch, height, width, channels, out_height, out_width, channels, channel_layout.pair(attrs.pool_size),
        channel_layout.pair(attrs.strides), channel_layout.pair(attrs.dilation),
        (pad_top, pad_left, pad_bottom, pad_right),
    )  # fmt: skip


def _exceeds_padding(conv: ConvShape) -> bool:
    """Test if the last window exceeds the padding."""
    pad_top, pad_left, pad_bottom, pad_right = conv.pads
    return conv.reach(0, conv.out_height) > conv.height + pad_top + pad_bottom or (
        conv.reach(1, conv.out_width) > conv.width + pad_left + pad_right
    )


def _share(form: PoolForm, h: Any, w: Any) -> Any:
    """Return the reciprocal of the counted elements."""
    conv = form.conv
    if form.include_pad or not conv.padded:
        return tirx.FloatImm("float32", 1 / (conv.kernel[0] * conv.kernel[1]))
    # Elements inside of the data, fewer for windows at a border.
    counts = []
    for axis, index, size in ((0, h, conv.height), (1, w, conv.width)):
        start = index * conv.strides[axis] - conv.pads[axis]
        end = tirx.Min(start + conv.kernel[axis], tir.number(size))
        counts.append(end - tirx.Max(start, tir.number(0)))
    return tirx.FloatImm("float32", 1.0) / (counts[0] * counts[1]).astype("float32")
