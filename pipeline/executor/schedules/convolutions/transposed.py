"""Transposed convolution: the rule, and the loops over its phases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tvm.ir import GenericConst

from pipeline.executor.schedules import anchors
from pipeline.executor.schedules.convolutions import convolution, phases
from pipeline.executor.schedules.convolutions.convolution import Results
from pipeline.executor.schedules.convolutions.phases import Axis, Part, Transposed
from pipeline.executor.schedules.convolutions.windows import WindowKernel
from pipeline.executor.schedules.language import tir
from pipeline.executor.schedules.layout import images
from pipeline.executor.schedules.layout.rewriter import Rewriter
from pipeline.executor.schedules.layout.values import constant, is_static
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.tiled import packing
from pipeline.executor.schedules.tiled.packing import Layout
from pipeline.executor.schedules.tiled.tiles import Tile, Window

Store = Callable[..., Any]


def rule(rewriter: Rewriter, call: Any, *, machine: Machine) -> Any:
    """Return the value of a ``conv2d_transpose``, or None if its weights are no float32 constant."""
    data, weights = call.args
    attrs = call.attrs
    if not isinstance(weights, GenericConst) or not is_static(data, call):
        return None
    if any(str(each.ty.dtype) != "float32" for each in (data, weights, call)):
        return None
    lie, array = images.of(call), images.weights(call, np.asarray(weights.value.numpy()), "IOHW")
    if lie is None or array is None:
        return None
    batch, *size, channels = lie.extents(data.ty)
    shape = lie.extents(call.ty)
    makes, groups = shape[3], int(attrs.groups)
    first, second = (
        Axis(
            size[axis], shape[1 + axis], array.shape[2 + axis], int(attrs.strides[axis]), int(attrs.dilation[axis]),
            int(attrs.padding[axis]),
        )
        for axis in (0, 1)
    )  # fmt: skip
    kernel = array.reshape(groups, channels // groups, makes // groups, *array.shape[2:]).transpose(0, 2, 1, 3, 4)
    kernel = kernel.reshape(makes, channels // groups, *array.shape[2:])
    form, packed = _packed(kernel, (first, second), (batch, channels, makes, groups), machine)
    # Depthwise weights are few.
    packed = packed if form.depthwise else packing.stored(packed, machine)
    operands = [lie.source(rewriter, data), constant(packed)]
    return lie.result(anchors.stand_in(rewriter.builder, "transposed", form, operands, shape))


def _packed(
    kernel: np.ndarray, axes: tuple[Axis, Axis], sizes: tuple[int, int, int, int], machine: Machine
) -> tuple[Transposed, np.ndarray]:
    batch, channels, makes, groups = sizes
    depthwise = groups == channels == makes
    parts, pieces, done = [], [np.zeros(0, np.float32)], 0
    for rows in axes[0].classes():
        for columns in axes[1].classes():
            window = phases.window(batch, (channels, makes), axes, rows, columns, groups)
            part = Part(rows, columns, _layout(window, machine, depthwise=depthwise), done)
            if window.terms:
                for weights in phases.weights_of(kernel, axes, part):
                    # A channel's own weights lie as the channels do.
                    plain = weights[:, 0].transpose(1, 2, 0).reshape(-1)
                    pieces.append(plain if depthwise else packing.pack(weights, part.layout))
                    done += pieces[-1].size
            parts.append(part)
    # An array without elements is none.
    pieces += [] if done else [np.zeros(1, np.float32)]
    return Transposed((axes[0].stride, axes[1].stride), depthwise, tuple(parts)), np.concatenate(pieces)


def _layout(window: Window, machine: Machine, *, depthwise: bool) -> Layout:
    if depthwise or not window.terms:
        return Layout(replace(window, groups=1) if depthwise else window, Tile(1, 1, 1), 1, machine.lanes)
    return packing.layout(window, machine)


def statement(form: Transposed, machine: Machine, data: Any, weights: Any, results: Results, tasks: int) -> Any:  # noqa: PLR0913, PLR0917
    """Return the whole computation."""
    kernel = _Kernel(form, machine, data, weights, results.store)
    return tir.sequence([kernel.part(part, tasks) for part in form.parts])


class _Kernel:
    """Writes the loops of one part after the other."""

    def __init__(self, form: Transposed, machine: Machine, data: Any, weights: Any, store: Store) -> None:
        self._form, self._machine, self._store = form, machine, store
        self._data, self._weights = data, weights

    def part(self, part: Part, tasks: int) -> Any:
        """Return the loops of one part."""
        window = part.layout.window
        size = window.terms if self._form.depthwise else part.layout.size

        def phase(index: Any) -> Any:
            row, column = tir.places(index, (part.rows.many, part.columns.many))
            store = self._placed(row + part.rows.first, column + part.columns.first)
            first = index * size + part.weights
            if not window.kernel[0] * window.kernel[1]:
                return self._zeros(window, store, tasks)
            if self._form.depthwise:
                return self._depthwise(window, first, store, tasks)
            return convolution.Kernel(
                part.layout, self._machine, self._data, self._weights, Results(store), tasks, first
            ).statement()

        return tir.loop("phase", part.phases, phase)

    def _placed(self, row: Any, column: Any) -> Store:
        """Return the store for a phase, which is at these places among its neighbours."""
        down, right = self._form.strides

        def store(total: Any, image: Any, h: Any, w: Any, c: Any) -> Any:
            return self._store(total, image, h * down + row, w * right + column, c)

        return store

    def _depthwise(self, window: Window, first: Any, store: Store, tasks: int) -> Any:
        width, channels = window.kernel[1], window.channels

        def combine(total: Any, element: Any, down: Any, right: Any, c: Any, lanes: int) -> Any:  # noqa: PLR0913, PLR0917
            at = (down * width + right) * channels + (first + c)
            return total + element * tir.load(self._weights, tir.span(at, lanes))

        return WindowKernel(window, self._machine, self._data, 0.0, combine, store, tasks).statement()

    @staticmethod
    def _zeros(window: Window, store: Store, tasks: int) -> Any:
        def pixel(index: Any) -> Any:
            places = tir.places(index, (window.batch, window.out_height, window.out_width))
            zero = tir.constant(0.0)
            return tir.loop("c", window.out_channels, lambda c: store(zero, *places, c), tir.VECTORIZED)

        pixels = window.batch * window.out_height * window.out_width
        return tir.loop("pixel", pixels, pixel, tir.parallel(tasks))
