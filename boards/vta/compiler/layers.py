"""Convolution, Addition, MaxPool and Concatenation: int8 layers as immutable values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.core.scale_limits import ScaleLimits
from pipeline.errors import BuildError

LIMITS = ScaleLimits(shift=15, factor=6, sum_bits=32)
"""Limits after sums. Boards shift by at most 15 bits at once, and weights, 2^6 among them, have eight bits."""

# Four bits of a LOAD hold a padding: VTA_MEMOP_PAD_BIT_WIDTH of hw_spec.h.
_LONGEST_PAD = 15
# A shift that is the same for all channels may be several instructions; beyond 31 nothing of a sum is left.
_LONGEST_SHIFT = 31


@dataclass(frozen=True, eq=False)
class Convolution:
    """Result = clip((sum of products + bias) >> shift), rounded to nearest.

    Attributes
    ----------
    inputs : tuple of int
        Channels, height and width of the input.
    weights : int8[outputs, channels / groups, height, width]
        Weights of the kernel.
    bias : int32[outputs]
        Added to the sums.
    shift : int8[outputs]
        Bits to shift right by; at most 31 if all are the same, else 15.
    strides : tuple of int
        Down and across.
    padding : tuple of int
        Rows and columns of zeros: above, left, below, right; each less than the kernel's extent.
    low, high : int
        Bounds to which the results are clipped.
    even : bool
        True if halves are rounded to the even neighbour, as ONNX defines it, and not up; that takes more time, and is
        left out where no sum can lie halfway.
    groups : int
        Groups of channels, each of which makes as many results of its own.

    Raises
    ------
    BuildError
        If these do not fit each other, or VTA.
    """

    inputs: tuple[int, int, int]
    weights: npt.NDArray[np.int8]
    bias: npt.NDArray[np.int32]
    shift: npt.NDArray[np.int8]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    low: int = -128
    high: int = 127
    even: bool = False
    groups: int = 1

    def __post_init__(self) -> None:
        outputs, channels, *_ = self.weights.shape
        if channels * self.groups != self.inputs[0]:
            raise BuildError(f"weights are for {channels * self.groups} channels, and the input has {self.inputs[0]}")
        if outputs % self.groups:
            raise BuildError(f"{outputs} outputs cannot be divided into {self.groups} groups")
        if self.bias.shape != (outputs,) or self.shift.shape != (outputs,):
            raise BuildError(
                f"bias and shift have {self.bias.shape} and {self.shift.shape} values for {outputs} outputs"
            )
        # Shifts that differ are elements of ACC, of which a board heeds five bits; equal ones are immediates of as many
        # instructions as it takes.
        longest = LIMITS.shift if np.ptp(self.shift) else _LONGEST_SHIFT
        if self.shift.min() < 0 or self.shift.max() > longest:
            raise BuildError(f"shifts are {self.shift.min()} to {self.shift.max()}; VTA can do 0 to {longest} here")
        _check_range(self.low, self.high)
        _check_window(self.kernel, self.strides, self.padding)
        _check_results(self.kernel, self.inputs, self.outputs)

    @property
    def kernel(self) -> tuple[int, int]:
        """Height and width of the kernel."""
        height, width = self.weights.shape[2:]
        return height, width

    @property
    def outputs(self) -> tuple[int, int, int]:
        """Channels, height and width of the result."""
        return (self.weights.shape[0], *_positions(self.inputs, self.kernel, self.strides, self.padding))

    @property
    def requantization(self) -> Requantization:
        """The bias, shift and clipping of its sums."""
        even = self.even and bool(halfway(self).any())
        return Requantization.of(self.bias, self.shift, self.low, self.high, even=even)

    @property
    def macs(self) -> int:
        """Products per frame, without padded channels."""
        return int(self.weights.size) * self.outputs[1] * self.outputs[2]


@dataclass(frozen=True)
class Addition:
    """Result = clip(((left << left_shift) + (right << right_shift)) >> shift), rounded.

    Attributes
    ----------
    shape : tuple of int
        Channels, height and width of both inputs and of the result.
    left_shift, right_shift : int
        Bits to shift an input left by, 0 to 6.
    shift : int
        Bits to shift the sum right by, 0 to 15.
    low, high : int
        Bounds to which the results are clipped.
    even : bool
        True if halves are rounded to the even neighbour, and not up.

    Raises
    ------
    BuildError
        If these are outside of their ranges.
    """

    shape: tuple[int, int, int]
    left_shift: int = 0
    right_shift: int = 0
    shift: int = 0
    low: int = -128
    high: int = 127
    even: bool = False

    def __post_init__(self) -> None:
        for name, limit in (
            ("left_shift", LIMITS.factor),
            ("right_shift", LIMITS.factor),
            ("shift", LIMITS.shift),
        ):
            if not 0 <= getattr(self, name) <= limit:
                raise BuildError(f"{name} is {getattr(self, name)}; VTA can do 0 to {limit} here")
        _check_range(self.low, self.high)


@dataclass(frozen=True)
class MaxPool:
    """Result = the largest value per window, padding excluded.

    Attributes
    ----------
    inputs : tuple of int
        Channels, height and width of the input.
    kernel, strides : tuple of int
        Down and across.
    padding : tuple of int
        Rows and columns around the input: above, left, below, right; each less than the kernel's extent.

    Raises
    ------
    BuildError
        If these do not fit each other.
    """

    inputs: tuple[int, int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)

    def __post_init__(self) -> None:
        _check_window(self.kernel, self.strides, self.padding)
        _check_results(self.kernel, self.inputs, self.outputs)

    @property
    def outputs(self) -> tuple[int, int, int]:
        """Channels, height and width of the result."""
        return (self.inputs[0], *_positions(self.inputs, self.kernel, self.strides, self.padding))


@dataclass(frozen=True)
class Concatenation:
    """Result = the channels of several tensors, concatenated; `BuildError` if their extents differ.

    Attributes
    ----------
    shapes : tuple of (int, int, int)
        Channels, height and width of each.
    """

    shapes: tuple[tuple[int, int, int], ...]

    def __post_init__(self) -> None:
        if len({shape[1:] for shape in self.shapes}) != 1:
            raise BuildError(f"tensors of {self.shapes} cannot be joined; their heights and widths must be the same")

    @property
    def outputs(self) -> tuple[int, int, int]:
        """Channels, height and width of the result."""
        return (sum(shape[0] for shape in self.shapes), *self.shapes[0][1:])


def _positions(
    inputs: tuple[int, int, int], kernel: tuple[int, int], strides: tuple[int, int], padding: tuple[int, int, int, int]
) -> tuple[int, int]:
    top, left, bottom, right = padding
    height = (inputs[1] + top + bottom - kernel[0]) // strides[0] + 1
    width = (inputs[2] + left + right - kernel[1]) // strides[1] + 1
    return height, width


def _check_window(kernel: tuple[int, int], strides: tuple[int, int], padding: tuple[int, int, int, int]) -> None:
    pads = (padding[::2], padding[1::2])
    # A pad as large as the kernel would make windows of nothing but padding.
    if any(not 0 <= pad < min(size, _LONGEST_PAD + 1) for side, size in zip(pads, kernel, strict=True) for pad in side):
        raise BuildError(f"padding {padding} must be at least 0, below the kernel's extents {kernel}, and below 16")
    if min(strides) < 1:
        raise BuildError(f"strides are {strides}; they must be at least 1")


def _check_results(kernel: tuple[int, int], inputs: tuple[int, int, int], outputs: tuple[int, int, int]) -> None:
    if min(outputs) < 1:
        raise BuildError(f"a kernel of {kernel} on an input of {inputs} leaves {outputs} results")


def _check_range(low: int, high: int) -> None:
    if not -128 <= low <= high <= 127:
        raise BuildError(f"results are clipped to {low} .. {high}; that must be a range of int8")


@dataclass(frozen=True, eq=False)
class Requantization:
    """Bias, shift and clipping from a layer's sums to int8.

    Attributes
    ----------
    bias : int32[outputs]
        Added to the sums; rounds halves up, too.
    shift : int8[outputs]
        Bits to shift right by then.
    low, high : int
        Bounds to which the results are clipped.
    even : bool
        True if halves, which the bias has rounded up, go to the even neighbour.
    """

    bias: npt.NDArray[np.int32]
    shift: npt.NDArray[np.int8]
    low: int
    high: int
    even: bool = False

    @classmethod
    def of(
        cls, bias: npt.NDArray[np.int32], shift: npt.NDArray[np.int8], low: int, high: int, *, even: bool = False
    ) -> Requantization:
        """Return the values with rounding constants in the bias, modulo 2^32."""
        # 0 where nothing is shifted.
        half = (1 << shift.astype(np.int64)) >> 1
        # By way of numbers without sign, whose casts are modulo a power of two.
        rounding = (bias.astype(np.int64) + half).astype(np.uint64).astype(np.uint32).view(np.int32)
        return cls(rounding, shift, low, high, even and bool(shift.any()))


def halfway(layer: Convolution) -> npt.NDArray[np.bool_]:
    """Test per channel for sums halfway between two results.

    If all weights of a channel are multiples of 2^n, its sums are the bias plus multiples of 2^n.
    """
    # The lowest bit of all weights together is the largest power of two that divides them; without any weight, the only
    # sum is the bias.
    common_bits = np.bitwise_or.reduce(layer.weights.reshape(len(layer.bias), -1), axis=1).astype(np.int64)
    step = np.where(common_bits == 0, 1 << _LONGEST_SHIFT, common_bits & -common_bits)
    half = (1 << layer.shift.astype(np.int64)) >> 1
    # A sum lies halfway if it is `half` modulo twice that, and sums reach what the bias is modulo the step.
    period = np.minimum(step, 2 * np.maximum(half, 1))
    may_tie: npt.NDArray[np.bool_] = (half > 0) & ((layer.bias.astype(np.int64) - half) % period == 0)
    return may_tie
