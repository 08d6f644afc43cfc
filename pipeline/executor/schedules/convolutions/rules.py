"""The rule for convolutions: which kernel computes one, with its weights packed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from pipeline.executor.schedules import anchors
from pipeline.executor.schedules.layout import images
from pipeline.executor.schedules.layout.images import Images
from pipeline.executor.schedules.layout.rewriter import Rewriter
from pipeline.executor.schedules.layout.values import constant, is_static
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.tiled import packing
from pipeline.executor.schedules.tiled.tiles import Window
from pipeline.executor.schedules.winograd import winograd as transformed


def convolution(rewriter: Rewriter, call: Any, *, machine: Machine, winograd: bool) -> Any:
    """Return the value of a ``conv2d``, or None if it has no weights of float32 that are constant."""
    data, weights = call.args
    lie = images.of(call)
    if lie is None or not isinstance(weights, GenericConst) or not is_static(data, call):
        return None
    array = images.weights(call, np.asarray(weights.value.numpy()))
    if array is None or any(str(each.ty.dtype) != "float32" for each in (data, weights, call)):
        return None
    seen, source = window(lie, call, array.shape), lie.source(rewriter, data)
    if is_by_channel(seen, machine):
        return lie.result(by_channel(rewriter.builder, source, seen, array))
    rule, detail, packed = _chosen(seen, array, machine, winograd=winograd)
    operands = [source, constant(packing.stored(packed, machine))]
    return lie.result(anchors.stand_in(rewriter.builder, rule, detail, operands, seen.made))


def _chosen(seen: Window, weights: np.ndarray, machine: Machine, *, winograd: bool) -> tuple[str, Any, np.ndarray]:
    """Return the kernel's rule and description, and the packed weights."""
    if winograd and (tiled := transformed.chosen(seen, machine)):
        return "winograd", tiled, transformed.pack(weights, tiled)
    rule, form = packing.chosen("convolution", seen, machine)
    return rule, form, packing.pack(weights, form)


def window(lie: Images, call: Any, weights: tuple[int, ...]) -> Window:
    """Return the window of a convolution by weights of shape (out, in, height, width)."""
    attrs = call.attrs
    batch, height, width, channels = lie.extents(call.args[0].ty)
    _, down, across, makes = lie.extents(call.ty)
    top, left, bottom, right = (int(each) for each in attrs.padding)
    return Window(
        batch, height, width, channels, down, across, makes, (weights[2], weights[3]), pair(attrs.strides),
        pair(attrs.dilation), (top, left, bottom, right), int(attrs.groups),
    )  # fmt: skip


def pair(values: Any) -> tuple[int, int]:
    """Return two numbers of an attribute."""
    first, second = (int(each) for each in values)
    return first, second


def is_by_channel(seen: Window, machine: Machine) -> bool:
    """Whether each channel is seen alone, by so few kernels that the channels make better vectors than these."""
    return seen.depth == 1 and seen.makes < (machine.lanes if seen.groups > 1 else 2)


def by_channel(builder: Any, source: Any, seen: Window, weights: np.ndarray) -> Any:
    """Return the stand-in of a convolution that sees each channel alone; several kernels see copies of it."""
    if seen.makes > 1:
        source = builder.emit(relax.op.repeat(source, seen.makes, 3))
    packed = constant(weights[:, 0].transpose(1, 2, 0))
    # A channel that sees itself only is what a window without groups has.
    alone = replace(seen, channels=seen.out_channels, groups=1)
    return anchors.stand_in(builder, "depthwise", alone, [source, packed], seen.made)
