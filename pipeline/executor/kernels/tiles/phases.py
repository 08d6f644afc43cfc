"""Phases: a transposed convolution as ordinary ones on interleaved outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.packing import PackedLayout


@dataclass(frozen=True)
class ConvTransposeAxis:
    """Transposed convolution along one axis: data, result and kernel positions."""

    size: int
    outputs: int
    kernel: int
    stride: int
    dilation: int
    pad: int

    def taps(self, phase: int) -> list[int]:
        """Return a phase's kernel rows, in data order."""
        return [
            tap for tap in reversed(range(self.kernel)) if (phase + self.pad - tap * self.dilation) % self.stride == 0
        ]

    def classes(self) -> Iterator[PhaseRange]:
        """Yield all phases, grouped unless more than weights differ."""
        ranges: list[PhaseRange] = []
        for phase in range(min(self.stride, self.outputs)):
            taps = self.taps(phase)
            # Output o reads element i by tap t where o + pad = i * stride + t * dilation; this is -i for the first
            # output.
            pad_before = (taps[0] * self.dilation - self.pad - phase) // self.stride if taps else 0
            outputs = -(-(self.outputs - phase) // self.stride)
            is_alike = ranges and (ranges[-1].taps, ranges[-1].pad_before, ranges[-1].outputs) == (
                len(taps),
                pad_before,
                outputs,
            )
            # Phases of one range take one loop and one kernel, with other weights in each turn.
            if is_alike and ranges[-1].first + ranges[-1].count == phase:
                ranges[-1] = PhaseRange(ranges[-1].first, ranges[-1].count + 1, len(taps), pad_before, outputs)
            else:
                ranges.append(PhaseRange(phase, 1, len(taps), pad_before, outputs))
        yield from ranges

    @property
    def spacing(self) -> int:
        """Data rows between a phase's taps."""
        # Taps of one phase are stride / gcd apart; that times the dilation is so many strides.
        return self.dilation // math.gcd(self.dilation, self.stride)


@dataclass(frozen=True)
class PhaseRange:
    """Neighbouring phases along one axis."""

    first: int
    count: int
    taps: int
    """Rows of the kernel."""
    pad_before: int
    """Padding that the first output needs before the tensor; negative if its data begin inside."""
    outputs: int


@dataclass(frozen=True)
class PhaseGroup:
    """Phases of one kernel."""

    rows: PhaseRange
    columns: PhaseRange
    layout: PackedLayout
    """Layout of each phase's convolution; its tile means nothing if there is one weight for each channel."""
    weights: int
    """Offset of the first phase's weights."""
    size: int
    """Weights of a phase."""

    @property
    def phases(self) -> int:
        """Number of phases."""
        return self.rows.count * self.columns.count


@dataclass(frozen=True)
class ConvTransposeForm:
    """Transposed convolution with its parts; `depthwise` for one kernel per channel."""

    strides: tuple[int, int]
    depthwise: bool
    parts: tuple[PhaseGroup, ...]

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        operations = sum(part.phases * part.layout.operations for part in self.parts)
        # The window of a depthwise one has no groups.
        # A sliding window's shape has no groups, and counts each channel with all of them.
        return operations // self.parts[0].layout.conv.channels if self.depthwise else operations


def weights_of(
    array: np.ndarray, axes: tuple[ConvTransposeAxis, ConvTransposeAxis], rows: PhaseRange, columns: PhaseRange
) -> list[np.ndarray]:
    """Return a part's weights (out, in, kh, kw) per phase."""
    return [
        array[:, :, axes[0].taps(rows.first + row)][:, :, :, axes[1].taps(columns.first + column)]
        for row in range(rows.count)
        for column in range(columns.count)
    ]


def phase_shape(  # noqa: PLR0913, PLR0917 - what a convolution consists of
    batch: int,
    channels: tuple[int, int],
    axes: tuple[ConvTransposeAxis, ConvTransposeAxis],
    rows: PhaseRange,
    columns: PhaseRange,
    groups: int,
) -> ConvShape:
    """Return the convolution shape of two classes' phases."""
    return ConvShape(
        batch, axes[0].size, axes[1].size, channels[0], rows.outputs, columns.outputs, channels[1],
        (rows.taps, columns.taps), (1, 1), (axes[0].spacing, axes[1].spacing),
        (rows.pad_before, columns.pad_before, 0, 0), groups,
    )  # fmt: skip
