"""Integer sums: convolutions and products of bytes as stand-ins, their weights packed in fours of input channels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.schedules import anchors, arithmetic, packing, steps
from pipeline.executor.schedules.arithmetic import BYTES
from pipeline.executor.schedules.layout import Rewriter, extents, is_static, name_of
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.steps import Scale, scale_of
from pipeline.executor.schedules.tiles import Window

_LARGEST = (1 << 31) - 1


@dataclass(frozen=True)
class Summed:
    """Sums of products of bytes.

    Attributes
    ----------
    sums : relax.Var
        Channels last.
    correction : array of int
        To be added for each output channel, so that the sums are those without zero points.
    scales : array of float64
        What one unit of the sums stands for, for each output channel.
    image : bool
        Whether it is a convolution's.
    """

    sums: Any
    correction: np.ndarray
    scales: np.ndarray
    image: bool


@dataclass(frozen=True)
class _Weights:
    """Weights as (out, in of one group, kh, kw), without zero points, and a scale for each output channel."""

    values: np.ndarray
    scales: np.ndarray


def numbers(dequantize: Any) -> np.ndarray:
    """Return the numbers that constant bytes stand for."""
    values, scale, zero = (each.value.numpy() for each in dequantize.args)
    axis = int(dequantize.attrs.axis)
    whole = values.astype(np.int32) - _along(zero.astype(np.int32), values.ndim, axis)
    made: np.ndarray = whole.astype(np.float32) * _along(scale, values.ndim, axis)
    return made


def summed(rewriter: Rewriter, call: Any, operands: list[Any], machine: Machine) -> Summed | None:
    """Return the sums of a convolution or product of two dequantised operands, the second constant; or None."""
    data, weights = operands
    scale = scale_of(data)
    image = name_of(call) == "nn.conv2d"
    found = (
        _weights(weights, image) if scale and is_static(call, data) and isinstance(data.args[0], relax.Var) else None
    )
    window = _window(call, image) if found is not None else None
    if scale is None or found is None or window is None:
        return None
    if math.prod(found.values.shape[1:]) * 255 * 128 * 2 > _LARGEST:
        return None
    source = (rewriter.last if image else rewriter.plain)(data.args[0])
    if scale.dtype == "int8":
        source = rewriter.builder.emit(steps.unsigned(rewriter.builder, source))
        scale = Scale(scale.value, scale.zero + 128, "uint8")
    alone = window.depth == window.makes == 1 and window.groups > 1
    make = _depthwise if alone else _product
    sums, zero = make(rewriter.builder, source, scale.zero, found.values, window, image, machine)
    sizes = found.values.reshape(len(found.values), -1).astype(np.int64).sum(1)
    return Summed(rewriter.builder.emit(sums), -zero * sizes, scale.value * found.scales.astype(np.float64), image)


def _along(each: np.ndarray, axes: int, axis: int) -> np.ndarray:
    shape = [1] * axes
    if each.size > 1:
        shape[axis] = -1
    return each.reshape(shape if axes else ())


def _weights(call: Any, image: bool) -> _Weights | None:
    if not all(isinstance(each, GenericConst) for each in call.args):
        return None
    values, scale, zero = (each.value.numpy() for each in call.args)
    axis = int(call.attrs.axis) % values.ndim
    if values.ndim != (4 if image else 2) or (max(scale.size, zero.size) > 1 and axis != (0 if image else 1)):
        return None
    whole = values.astype(np.int32) - _along(zero.astype(np.int32), values.ndim, axis)
    if whole.min() < -128 or whole.max() > 127:
        return None
    turned = whole if image else whole.T.reshape(*whole.T.shape, 1, 1)
    return _Weights(turned.astype(np.int8), np.broadcast_to(scale.reshape(-1), (len(turned),)))


def _window(call: Any, image: bool) -> Window | None:
    data = extents(call.args[0].ty)
    if not image:
        if len(data) != 2:
            return None
        return Window(1, data[0], 1, data[1], data[0], 1, extents(call.ty)[1], (1, 1), (1, 1), (1, 1), (0, 0, 0, 0))
    attrs = call.attrs
    if (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW") != ("NCHW", "OIHW", "NCHW"):
        return None
    (batch, channels, height, width), (_, made, down, right) = data, extents(call.ty)
    kernel = _whole(call.args[1].ty.shape)[2:]
    strides, dilation, pads = (_whole(each) for each in (attrs.strides, attrs.dilation, attrs.padding))
    groups = int(attrs.groups)
    return Window(batch, height, width, channels, down, right, made, kernel, strides, dilation, pads, groups)


def _whole(numbers: Any) -> Any:
    return tuple(int(each) for each in numbers)


def _product(  # noqa: PLR0913, PLR0917 - what a product consists of
    builder: Any, source: Any, zero: int, values: np.ndarray, window: Window, image: bool, machine: Machine
) -> tuple[Any, int]:
    missing = -window.depth % BYTES
    source = _filled(builder, source, window, missing)
    filled = np.pad(values, ((0, 0), (0, missing), (0, 0), (0, 0)))
    # Four bytes of neighbouring channels count as one number from here on.
    fours = np.ascontiguousarray(filled.transpose(0, 2, 3, 1)).view(np.int32).transpose(0, 3, 1, 2)
    window = replace(window, channels=fours.shape[1] * window.groups)
    form = packing.layout(window.flattened() if window.pointwise and image else window, machine)
    packed = packing.pack(fours, form)
    filler = int(np.array([zero] * BYTES, np.uint8).view(np.int32)[0])
    detail = replace(form, window=window, each=BYTES, filler=filler)
    shape = (window.batch, window.out_height, window.out_width, window.out_channels)
    made = anchors.stand_in(
        builder,
        "convolution" if image else "dense",
        detail,
        [source, relax.const(packed)],
        shape if image else (window.height, window.out_channels),
        "int32",
    )
    return made, zero - arithmetic.offset(machine)


def _filled(builder: Any, source: Any, window: Window, missing: int) -> Any:
    """Return the data with so many channels more in each group, whose weights are zero."""
    if not missing:
        return source
    outer, groups = extents(source.ty)[:-1], window.groups
    if groups > 1:
        source = builder.emit(relax.op.reshape(source, (*outer, groups, window.depth)))
    widths = [0, 0] * (len(extents(source.ty)) - 1) + [0, missing]
    source = builder.emit(relax.op.nn.pad(source, widths, "constant", 0))
    if groups > 1:
        source = builder.emit(relax.op.reshape(source, (*outer, groups * (window.depth + missing))))
    return source


def _depthwise(
    builder: Any, source: Any, zero: int, values: np.ndarray, window: Window, _: bool, __: Machine
) -> tuple[Any, int]:
    """Return sums in float32, which are exact for numbers as small as these."""
    packed = np.ascontiguousarray(values[:, 0].transpose(1, 2, 0)).astype(np.float32)
    alone = replace(window, groups=1)
    data = builder.emit(steps.centered(builder, source, zero))
    shape = (window.batch, window.out_height, window.out_width, window.out_channels)
    return anchors.stand_in(builder, "depthwise", alone, [data, relax.const(packed)], shape), 0
