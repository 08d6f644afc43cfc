"""Images: how an operator's tensors lie in the model, channels first or last; its kernel has them last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.executor.schedules.layout.rewriter import Plain, Rewriter
from pipeline.executor.schedules.layout.values import FIRST, LAST, TO_LAST, extents, layout_of


@dataclass(frozen=True)
class Images:
    """Whether an operator's data and result have their channels first, before the pixels."""

    first: bool

    @property
    def channels(self) -> int:
        """The axis."""
        return 1 if self.first else 3

    def extents(self, ty: Any) -> tuple[int, int, int, int]:
        """Return batch, height, width and channels of a type."""
        found = extents(ty)
        batch, height, width, channels = (found[axis] for axis in TO_LAST) if self.first else found
        return batch, height, width, channels

    def source(self, rewriter: Rewriter, value: Any) -> Any:
        """Return an operand with its channels last."""
        return rewriter.last(value) if self.first else rewriter.plain(value)

    def result(self, made: Any) -> Any:
        """Return what has its channels last as a rule is to return it."""
        return made if self.first else Plain(made)


def of(call: Any) -> Images | None:
    """Return how the data and the result of a convolution or pooling lie, if it is one of the two ways."""
    layout = layout_of(call)
    if layout not in (FIRST, LAST) or str(call.attrs.out_layout or layout) != layout:
        return None
    return Images(layout == FIRST)


def weights(call: Any, values: np.ndarray, order: str = "OIHW") -> np.ndarray | None:
    """Return a convolution's weights with their axes in an order, if they have just these."""
    layout = str(call.attrs.kernel_layout)
    return values.transpose([layout.index(axis) for axis in order]) if sorted(layout) == sorted(order) else None
