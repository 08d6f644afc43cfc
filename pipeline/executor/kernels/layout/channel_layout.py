"""Channel layout: first or last in the model, last in kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.executor.kernels.layout.expressions import FIRST, LAST, TO_LAST, extents, layout_of
from pipeline.executor.kernels.layout.rewriter import ModelLayout, Rewriter


@dataclass(frozen=True)
class ChannelLayout:
    """Layout of data and result: channels before or after the pixels."""

    first: bool

    @property
    def channels(self) -> int:
        """Axis of the channels."""
        return 1 if self.first else 3

    def extents(self, ty: Any) -> tuple[int, int, int, int]:
        """Return batch, height, width and channels of a type."""
        shape = extents(ty)
        batch, height, width, channels = (shape[axis] for axis in TO_LAST) if self.first else shape
        return batch, height, width, channels

    def source(self, rewriter: Rewriter, value: Any) -> Any:
        """Return an operand with its channels last."""
        return rewriter.last(value) if self.first else rewriter.plain(value)

    def result(self, value: Any) -> Any:
        """Return a channels-last value as a match result."""
        return value if self.first else ModelLayout(value)


def layout_of_call(call: Any) -> ChannelLayout | None:
    """Return the supported layout of a convolution or pooling, else None."""
    layout = layout_of(call)
    # A result in another layout than the data's would need a transposition inside of the kernel.
    if layout not in (FIRST, LAST) or str(call.attrs.out_layout or layout) != layout:
        return None
    return ChannelLayout(layout == FIRST)


def order_weights(call: Any, values: np.ndarray, order: str = "OIHW") -> np.ndarray | None:
    """Transpose a convolution's weights, if they have exactly these axes."""
    layout = str(call.attrs.kernel_layout)
    return values.transpose([layout.index(axis) for axis in order]) if sorted(layout) == sorted(order) else None


def pair(values: Any) -> tuple[int, int]:
    """Return two numbers of an attribute."""
    first, second = (int(value) for value in values)
    return first, second
