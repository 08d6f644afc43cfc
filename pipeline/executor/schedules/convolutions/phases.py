"""Phases: a transposed convolution as ordinary ones, each of which makes a part of the rows and columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.executor.schedules.tiled.packing import Layout
from pipeline.executor.schedules.tiled.tiles import Window


@dataclass(frozen=True)
class Axis:
    """A transposed convolution along one axis: sizes of data and result, and how the kernel lies."""

    size: int
    outputs: int
    kernel: int
    stride: int
    dilation: int
    pad: int

    def taps(self, phase: int) -> list[int]:
        """Return which of the kernel's rows make the outputs of a phase, in the order of the data they read."""
        return [
            tap for tap in reversed(range(self.kernel)) if (phase + self.pad - tap * self.dilation) % self.stride == 0
        ]

    def classes(self) -> Iterator[Class]:
        """Yield all phases, those together that differ in their weights only."""
        found: list[Class] = []
        for phase in range(min(self.stride, self.outputs)):
            taps = self.taps(phase)
            before = (taps[0] * self.dilation - self.pad - phase) // self.stride if taps else 0
            outputs = -(-(self.outputs - phase) // self.stride)
            same = found and (found[-1].taps, found[-1].before, found[-1].outputs) == (len(taps), before, outputs)
            if same and found[-1].first + found[-1].many == phase:
                found[-1] = Class(found[-1].first, found[-1].many + 1, len(taps), before, outputs)
            else:
                found.append(Class(phase, 1, len(taps), before, outputs))
        yield from found

    @property
    def spacing(self) -> int:
        """Rows of data from one of a phase's taps to the next."""
        return self.dilation // math.gcd(self.dilation, self.stride)


@dataclass(frozen=True)
class Class:
    """Neighbouring phases along one axis.

    Attributes
    ----------
    first, many : int
    taps : int
        Rows of the kernel.
    before : int
        By how much the first output's data begin before the tensor; negative if inside.
    outputs : int
        Of each phase.
    """

    first: int
    many: int
    taps: int
    before: int
    outputs: int


@dataclass(frozen=True)
class Part:
    """Phases that one kernel computes.

    Attributes
    ----------
    rows, columns : Class
    layout : Layout
        Of the convolution that each phase is; its tile means nothing if there is one weight for each channel.
    weights : int
        Where those of the first phase start; all phases have as many.
    """

    rows: Class
    columns: Class
    layout: Layout
    weights: int

    @property
    def phases(self) -> int:
        """How many there are."""
        return self.rows.many * self.columns.many


@dataclass(frozen=True)
class Transposed:
    """A transposed convolution with its parts; `depthwise` if each channel has its own kernel."""

    strides: tuple[int, int]
    depthwise: bool
    parts: tuple[Part, ...]

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        operations = sum(part.phases * part.layout.window.operations for part in self.parts)
        # The window of a depthwise one has no groups.
        return operations // self.parts[0].layout.window.channels if self.depthwise else operations


def weights_of(array: np.ndarray, axes: tuple[Axis, Axis], part: Part) -> list[np.ndarray]:
    """Return the weights of each phase of a part, as (out, in, kh, kw), of weights as (out, in, kh, kw)."""
    return [
        array[:, :, axes[0].taps(part.rows.first + row)][:, :, :, axes[1].taps(part.columns.first + column)]
        for row in range(part.rows.many)
        for column in range(part.columns.many)
    ]


def window(  # noqa: PLR0913, PLR0917 - what a convolution consists of
    batch: int, channels: tuple[int, int], axes: tuple[Axis, Axis], rows: Class, columns: Class, groups: int
) -> Window:
    """Return the convolution that each phase of two classes is."""
    return Window(
        batch, axes[0].size, axes[1].size, channels[0], rows.outputs, columns.outputs, channels[1],
        (rows.taps, columns.taps), (1, 1), (axes[0].spacing, axes[1].spacing), (rows.before, columns.before, 0, 0),
        groups,
    )  # fmt: skip
