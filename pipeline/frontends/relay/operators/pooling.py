"""Pooling: with windows, over everything, and to a given size."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.operators.pooling import adaptive_pool
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, shape
from pipeline.frontends.relay.operators.common import Converter, change_layout
from pipeline.frontends.relay.operators.convolution import check_layout

op = relax.op

_SPACE = {1: "W", 2: "HW", 3: "DHW"}


def _layout(attrs: Attributes, x: Any, axes: int) -> str:
    layout = attrs.text("layout", f"NC{_SPACE[axes]}")
    if len(shape(x)) != axes + 2:
        raise ModelError(f"expected {axes + 2} axes, found the shape {shape(x)}")
    return check_layout("layout", layout, f"NC{_SPACE[axes]}")


def _windows(kind: str, axes: int, builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    """Convert pooling with windows, in the usual axis order."""
    operator = getattr(op.nn, f"{kind}_pool{axes}d")
    layout, channels_first = _layout(attrs, x, axes), f"NC{_SPACE[axes]}"
    options = {"count_include_pad": attrs.flag("count_include_pad")} if kind == "avg" else {}
    call = operator(
        change_layout(builder, x, layout, channels_first),
        pool_size=attrs.positive("pool_size", axes),
        strides=attrs.positive("strides", axes),
        padding=attrs.padding(axes),
        dilation=attrs.positive("dilation", axes),
        ceil_mode=attrs.flag("ceil_mode"),
        **options,
    )
    return change_layout(builder, builder.emit(call), channels_first, layout)


def _pool_globally(operator: Callable[..., Any], axes: int, builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    layout = _layout(attrs, x, axes)
    space = [layout.index(letter) for letter in _SPACE[axes]]
    return builder.emit(operator(x, axis=space, keepdims=True))


def _adaptive(kind: str, axes: int, builder: BindingBuilder, attrs: Attributes, x: Any) -> Any:
    """Convert pooling to a size: equal windows, else one by one."""
    layout, channels_first = _layout(attrs, x, axes), f"NC{_SPACE[axes]}"
    x = change_layout(builder, x, layout, channels_first)
    have = shape(x)[2:]
    # Without a size the extents stay, which Relay takes for its default.
    want = tuple(attrs.positive("output_size", axes)) if attrs.get("output_size") else have
    result = builder.emit(adaptive_pool(builder.emit, x, want, kind))
    return change_layout(builder, result, channels_first, layout)


TABLE: dict[str, Converter] = {
    **{f"nn.{kind}_pool{axes}d": functools.partial(_windows, kind, axes) for kind in ("max", "avg") for axes in _SPACE},
    **{f"nn.global_avg_pool{axes}d": functools.partial(_pool_globally, op.mean, axes) for axes in _SPACE},
    **{f"nn.global_max_pool{axes}d": functools.partial(_pool_globally, op.max, axes) for axes in _SPACE},
    **{
        f"nn.adaptive_{kind}_pool{axes}d": functools.partial(_adaptive, kind, axes)
        for kind in ("max", "avg")
        for axes in _SPACE
    },
}
