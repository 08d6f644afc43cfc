"""Rules: which operators have kernels of their own; each becomes a stand-in while a stage gets its layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.schedules import anchors, line_rules, moving, packing, products, reductions, transposed
from pipeline.executor.schedules import winograd as transformed
from pipeline.executor.schedules.layout import Rewriter, Rule, extents, name_of
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.tiles import Window


@dataclass(frozen=True)
class Pool:
    """A pooling: its window, and what it does with the elements."""

    window: Window
    kind: str
    include_pad: bool


@dataclass(frozen=True)
class Normalization:
    """A local response normalization over channels: ``x / (bias + alpha * mean(x * x)) ** beta``."""

    shape: tuple[int, int, int, int]
    size: int
    before: int
    alpha: float
    bias: float
    beta: float


def for_layout(machine: Machine, *, winograd: bool = False) -> dict[str, Rule]:
    """Return the rules that take operators over while a stage gets its layout; `winograd` as for `optimise`."""
    return {
        "nn.conv2d": lambda rewriter, call: _convolution(rewriter, call, machine, winograd),
        "nn.conv2d_transpose": lambda rewriter, call: transposed.rule(rewriter, call, machine),
        "nn.max_pool2d": _pool,
        "nn.avg_pool2d": _pool,
        "matmul": lambda rewriter, call: products.product(rewriter, call, machine),
        "divide": _first(_normalization, line_rules.standardized),
        **dict.fromkeys(reductions.KINDS, line_rules.reduction),
        "permute_dims": moving.permute_dims,
        "image.resize2d": moving.resize,
        "nn.pad": moving.pad,
        "take": moving.take,
        # What is no call of an operator.
        "": moving.part,
        "nn.softmax": line_rules.softmax,
        "nn.log_softmax": line_rules.softmax,
        "nn.layer_norm": line_rules.layer_norm,
    }


def _first(*rules: Rule) -> Rule:
    """Return the rule that asks one after the other."""
    return lambda rewriter, call: next((made for rule in rules if (made := rule(rewriter, call)) is not None), None)


def _is_float(*values: Any) -> bool:
    return all(str(each.ty.dtype) == "float32" for each in values)


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple(int(each) for each in values)


def _pads(values: Any) -> tuple[int, int, int, int]:
    top, left, bottom, right = _numbers(values)
    return top, left, bottom, right


def _pair(values: Any) -> tuple[int, int]:
    first, second = _numbers(values)
    return first, second


def _convolution(rewriter: Rewriter, call: Any, machine: Machine, winograd: bool) -> Any:
    data, weights = call.args
    attrs = call.attrs
    if not isinstance(weights, GenericConst) or not _is_float(data, weights, call):
        return None
    if (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW") != ("NCHW", "OIHW", "NCHW"):
        return None
    batch, channels, height, width = extents(data.ty)
    _, out_channels, out_height, out_width = extents(call.ty)
    kernel = _pair(extents(weights.ty)[2:])
    window = Window(
        batch, height, width, channels, out_height, out_width, out_channels, kernel,
        _pair(attrs.strides), _pair(attrs.dilation), _pads(attrs.padding), int(attrs.groups),
    )  # fmt: skip
    array = np.asarray(weights.value.numpy())
    shape = (batch, out_height, out_width, out_channels)
    source = rewriter.last(data)
    if window.depth == window.makes == 1:
        packed = np.ascontiguousarray(array.reshape(channels, *kernel).transpose(1, 2, 0))
        # Each channel sees itself only, which is what a window without groups does.
        alone = replace(window, groups=1)
        return anchors.stand_in(rewriter.builder, "depthwise", alone, [source, relax.const(packed)], shape)
    if winograd and (tiled := transformed.chosen(window, machine)):
        operands = [source, relax.const(packing.stored(transformed.pack(array, tiled), machine))]
        return anchors.stand_in(rewriter.builder, "winograd", tiled, operands, shape)
    form = packing.layout(window.flattened() if window.pointwise else window, machine)
    packed = packing.stored(packing.pack(array, form), machine)
    detail = packing.Layout(window, form.tile, form.depth, form.lanes)
    return anchors.stand_in(rewriter.builder, "convolution", detail, [source, relax.const(packed)], shape)


def _pool(rewriter: Rewriter, call: Any) -> Any:
    data, attrs = call.args[0], call.attrs
    kind, dtype = "max" if name_of(call) == "nn.max_pool2d" else "mean", str(data.ty.dtype)
    if attrs.layout != "NCHW" or not (_is_float(data) or (kind, dtype) == ("max", "uint8")):
        return None
    batch, channels, height, width = extents(data.ty)
    _, _, out_height, out_width = extents(call.ty)
    window = Window(
        batch, height, width, channels, out_height, out_width, channels, _pair(attrs.pool_size),
        _pair(attrs.strides), _pair(attrs.dilation), _pads(attrs.padding),
    )  # fmt: skip
    beyond = window.reach(0, out_height) > height + window.pads[0] + window.pads[2] or (
        window.reach(1, out_width) > width + window.pads[1] + window.pads[3]
    )
    if kind == "mean" and (window.dilation != (1, 1) or (beyond and attrs.count_include_pad)):
        return None
    detail = Pool(window, kind, bool(attrs.count_include_pad))
    shape = (batch, out_height, out_width, channels)
    return anchors.stand_in(rewriter.builder, "pool", detail, [rewriter.last(data)], shape, dtype)


def _normalization(rewriter: Rewriter, call: Any) -> Any:
    """Find the sequence of operators that ONNX's LRN is imported as, by its last one."""
    source, power = call.args[0], rewriter.made_by(call.args[1], "power")
    names = ("add", "multiply", "squeeze", "nn.avg_pool3d", "expand_dims", "multiply")
    chain: list[Any] = []
    value = power.args[0] if power is not None else None
    for name in names:
        made = rewriter.made_by(value, name)
        if made is None:
            return None
        chain.append(made)
        value = made.args[0]
    add, scale, _, pool, _, square = chain
    numbers = [number for each in (power, add, scale) if (number := _single(each.args[1])) is not None]
    if len(numbers) < 3 or any(not each.same_as(source) for each in square.args):
        return None
    attrs = pool.attrs
    size, before = int(attrs.pool_size[0]), int(attrs.padding[0])
    plain = _numbers(attrs.pool_size)[1:] == (1, 1) and _numbers(attrs.strides) == (1, 1, 1)
    if not plain or not attrs.count_include_pad or _numbers(attrs.padding) != (before, 0, 0, size - 1 - before, 0, 0):
        return None
    if source.ty.ndim != 4 or not _is_float(source):
        return None
    batch, channels, height, width = extents(source.ty)
    beta, bias, alpha = numbers
    shape = (batch, height, width, channels)
    detail = Normalization(shape, size, before, alpha, bias, beta)
    return anchors.stand_in(rewriter.builder, "normalization", detail, [rewriter.last(source)], shape)


def _single(value: Any) -> float | None:
    array = value.value.numpy() if isinstance(value, GenericConst) else None
    return (
        float(array.reshape(-1)[0])
        if array is not None and array.size and (array == array.reshape(-1)[0]).all()
        else None
    )
