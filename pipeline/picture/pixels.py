"""Pixels: an array of bytes read as a picture.

Pictures travel as the camera or decoder made them, and are converted once, while they are resized.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.system.optional import require

SHARED = ("bgr24", "bgra", "gray", "nv12", "rgb24", "rgba", "yuv420p", "yuvj420p")
"""Formats that PyAV reads from an array in place."""

_COLOURS = {"rgb24": slice(None), "bgr24": slice(None, None, -1), "rgba": slice(3), "bgra": slice(2, None, -1)}
"""Positions of red, green and blue in formats that NumPy reads."""

FORMATS = (*SHARED, "yuyv422")
"""Formats of pictures on their way; others are converted to RGB where they are read."""


def library() -> Any:
    """Return PyAV, or raise `MissingExtra`."""
    return require("av", "video", "cameras and video")


@dataclass(frozen=True)
class Pixels:
    """Format, size and colours of a picture."""

    format: str
    """FFmpeg's name, one of `FORMATS`."""
    width: int
    height: int
    # AVCOL_SPC_UNSPECIFIED and AVCOL_RANGE_UNSPECIFIED of FFmpeg.
    colorspace: int = 2
    color_range: int = 0
    """FFmpeg's numbers; those for unknown by default."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of bytes."""
        # A byte of brightness per pixel, and below it two of colour for each square of four pixels.
        if self.format in ("nv12", "yuv420p", "yuvj420p"):
            return self.height * 3 // 2, self.width
        channels = {"bgr24": 3, "rgb24": 3, "bgra": 4, "rgba": 4, "yuyv422": 2}.get(self.format)
        return (self.height, self.width, channels) if channels else (self.height, self.width)

    @property
    def kernel(self) -> str:
        """Format whose kernel reads these pixels."""
        return {"bgr24": "rgb24", "bgra": "rgba", "yuvj420p": "yuv420p"}.get(self.format, self.format)

    def row_offsets(self, plane: int, rows: np.ndarray, stride: int) -> np.ndarray:
        """Return the bytes from the first pixel to a plane's rows, `stride` apart in the array."""
        if plane == 0 or self.format == "yuyv422":
            return rows * stride
        if self.format == "nv12":
            return (self.height + rows) * stride
        # Rows of half the width lie in pairs, those of the second colour behind all of the first.
        rows = rows + (plane - 1) * (self.height // 2)
        offsets: np.ndarray = (self.height + rows // 2) * stride + rows % 2 * (self.width // 2)
        return offsets

    def spec(self, name: str) -> TensorSpec:
        """Return the tensor of such a picture."""
        return TensorSpec(name, self.shape, "uint8")

    def wrap(self, array: np.ndarray) -> Any:
        """Return the array as PyAV's frame, in place if possible."""
        kind = library().VideoFrame
        # PyAV takes the rows for adjacent.
        array = np.ascontiguousarray(array)
        frame = (
            kind.from_numpy_buffer(array, self.format)
            if self.format in SHARED
            else kind.from_ndarray(array, self.format)
        )
        # Else FFmpeg converts by its defaults, and colours of a camera in full range are washed out.
        frame.colorspace, frame.color_range = self.colorspace, self.color_range
        return frame

    def array(self, frame: Any) -> np.ndarray:
        """Return PyAV's frame as an array, converted to this size and format."""
        # Cameras may change their size in the middle of a stream; the first stage takes one.
        if (frame.width, frame.height, frame.format.name) != (self.width, self.height, self.format):
            frame = frame.reformat(self.width, self.height, self.format)
        pixels: np.ndarray = frame.to_ndarray()
        return pixels

    def rgb(self, array: np.ndarray) -> np.ndarray:
        """Return the picture as uint8 [height, width, 3]."""
        if self.format in _COLOURS:
            return array[..., _COLOURS[self.format]]
        picture: np.ndarray = self.wrap(array).to_ndarray(format="rgb24")
        return picture


def choose_pixels(frame: Any) -> Pixels:
    """Choose the travel format of PyAV's frame, its own or RGB; raise `InputError` if empty."""
    source_format = frame.format.name
    if not frame.width or not frame.height:
        raise InputError("a picture without any pixels")
    is_readable = source_format in FORMATS and not cuts_colours(source_format, frame.width, frame.height)
    format_name = source_format if is_readable else "rgb24"
    # What was converted to RGB has no such property any more.
    colours = (frame.colorspace, frame.color_range) if format_name == source_format else (2, 0)
    return Pixels(format_name, frame.width, frame.height, *map(int, colours))


def cuts_colours(format_name: str, width: int, height: int) -> bool:
    """Test for a size that a format with fewer colours than pixels has no room for."""
    if format_name not in ("nv12", "yuv420p", "yuvj420p", "yuyv422"):
        return False
    # PyAV reads arrays of 4:2:0 by four rows, and would leave out the last two of 50.
    return bool(width % 2 or height % (2 if format_name == "yuyv422" else 4))
