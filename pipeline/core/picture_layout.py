"""Picture layout: channels, rows and columns of a model's input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError

_CHANNELS = (1, 3)
_POSITIONS = {"": "first or last", "nchw": "first", "nhwc": "last"}
_DTYPES = ("int8", "uint8", "float16", "float32")


@dataclass(frozen=True)
class PictureLayout:
    """Channels, rows and columns of a model's input, in order."""

    channels: int
    height: int
    width: int
    last: bool
    """True if channels are the last axis."""

    def planes(self, array: np.ndarray) -> np.ndarray:
        """Return the array as [channels, height, width], in place."""
        view = array.reshape(self.height, self.width, self.channels) if self.last else array
        return view.transpose(2, 0, 1) if self.last else view.reshape(self.channels, self.height, self.width)


def layout(spec: TensorSpec, order: str = "") -> PictureLayout:
    """Return the layout of a model's input, or raise `InputError`.

    `order`: ``"nchw"`` or ``"nhwc"``; empty to go by the shape.
    """
    # A batch of one picture; several pictures per frame would need a source of several.
    shape = spec.shape[1:] if len(spec.shape) == 4 and spec.shape[0] == 1 else spec.shape
    if len(shape) == 3 and spec.dtype in _DTYPES:
        # Where both ends could be channels, the first one is: a picture is hardly 1 or 3 pixels wide.
        if shape[0] in _CHANNELS and order != "nhwc":
            return PictureLayout(*shape, last=False)
        if shape[2] in _CHANNELS and order != "nchw":
            return PictureLayout(shape[2], *shape[:2], last=True)
    raise InputError(
        f"images do not fit the model's input {spec}; it takes one picture with 1 or 3 channels, "
        f"{_POSITIONS[order]}, as float32, float16, uint8 or int8; give .npy files"
    )
