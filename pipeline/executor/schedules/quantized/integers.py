"""Integer sums: convolutions and products of bytes as stand-ins, their weights packed in fours of input channels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.schedules import anchors
from pipeline.executor.schedules.convolutions import rules as convolutions
from pipeline.executor.schedules.layout import images
from pipeline.executor.schedules.layout.images import Images
from pipeline.executor.schedules.layout.rewriter import Rewriter
from pipeline.executor.schedules.layout.values import constant, extents, is_static, name_of
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.products import products
from pipeline.executor.schedules.quantized import steps
from pipeline.executor.schedules.quantized.steps import Scale, scale_of
from pipeline.executor.schedules.tiled import arithmetic, packing
from pipeline.executor.schedules.tiled.arithmetic import BYTES
from pipeline.executor.schedules.tiled.tiles import Window

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
    images : Images or None
        How a convolution's lie in the model; None for a product.
    """

    sums: Any
    correction: np.ndarray
    scales: np.ndarray
    images: Images | None

    @property
    def axis(self) -> int:
        """The axis of the channels in the model's own layout, from the end."""
        return self.images.channels - 4 if self.images else -1


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
    data, dequantize = operands
    scale, lie = scale_of(data), images.of(call) if name_of(call) == "nn.conv2d" else None
    if scale is None or not is_static(call, data) or not isinstance(data.args[0], relax.Var):
        return None
    found = _weights(dequantize, call, lie)
    window = _window(call, lie, found.values) if found else None
    if found is None or window is None or math.prod(found.values.shape[1:]) * 255 * 128 * 2 > _LARGEST:
        return None
    source = lie.source(rewriter, data.args[0]) if lie else rewriter.plain(data.args[0])
    if scale.dtype == "int8":
        source = rewriter.builder.emit(steps.unsigned(rewriter.builder, source))
        scale = Scale(scale.value, scale.zero + 128, "uint8")
    make = _by_channel if lie and convolutions.is_by_channel(window, machine) else _product
    sums, zero = make(rewriter.builder, source, scale.zero, found.values, window, lie is not None, machine)
    sizes = found.values.reshape(len(found.values), -1).astype(np.int64).sum(1)
    return Summed(rewriter.builder.emit(sums), -zero * sizes, scale.value * found.scales.astype(np.float64), lie)


def _along(each: np.ndarray, axes: int, axis: int) -> np.ndarray:
    shape = [1] * axes
    if each.size > 1:
        shape[axis] = -1
    return each.reshape(shape if axes else ())


def _weights(call: Any, product: Any, lie: Images | None) -> _Weights | None:
    """Return the dequantised weights of a product, if each of its outputs has one scale."""
    if not all(isinstance(each, GenericConst) for each in call.args):
        return None
    values, scale, zero = (each.value.numpy() for each in call.args)
    order = str(product.attrs.kernel_layout) if name_of(product) == "nn.conv2d" else "IO"
    if values.ndim != len(order) or (lie is None and values.ndim == 4):
        return None
    axis = int(call.attrs.axis) % values.ndim
    if max(scale.size, zero.size) > 1 and axis != order.find("O"):
        return None
    whole = values.astype(np.int32) - _along(zero.astype(np.int32), values.ndim, axis)
    if whole.min() < -128 or whole.max() > 127:
        return None
    turned = images.weights(product, whole) if lie else whole.T.reshape(*whole.T.shape, 1, 1)
    return None if turned is None else _Weights(turned.astype(np.int8), np.broadcast_to(scale.ravel(), (len(turned),)))


def _window(call: Any, lie: Images | None, weights: np.ndarray) -> Window | None:
    if lie:
        return convolutions.window(lie, call, weights.shape)
    data = extents(call.args[0].ty)
    return products.window(data[0], data[1], extents(call.ty)[1]) if len(data) == 2 else None


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
    made = anchors.stand_in(
        builder,
        "convolution" if image else "dense",
        detail,
        [source, constant(packed)],
        window.made if image else (window.height, window.out_channels),
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


def _by_channel(
    builder: Any, source: Any, zero: int, values: np.ndarray, window: Window, _: bool, __: Machine
) -> tuple[Any, int]:
    """Return sums in float32, which are exact for numbers as small as these."""
    data = builder.emit(steps.centered(builder, source, zero))
    return convolutions.by_channel(builder, data, window, values.astype(np.float32)), 0
