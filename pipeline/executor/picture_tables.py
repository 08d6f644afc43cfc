"""Picture tables: formats of pixels, and what a picture kernel reads at run time."""

from __future__ import annotations

from typing import NamedTuple

from pipeline.core.picture_layout import PictureLayout

TILE = 32
"""Columns of a tile of results: their windows stay in the first cache."""

NARROWEST = 16
"""Pixels of the narrowest window, as many as the widest vector has lanes."""


class PixelPlane(NamedTuple):
    """Bytes of a picture that share positions."""

    step: int
    """Bytes from one pixel to the next."""
    channels: tuple[int, ...]
    """Position of each channel in a pixel."""
    shared: tuple[int, int] = (1, 1)
    """Columns and rows of the picture for one of the plane's."""


_CHROMA = PixelPlane(1, (0,), (2, 2))
PLANES = {
    "gray": (PixelPlane(1, (0,)),),
    "rgb24": (PixelPlane(3, (0, 1, 2)),),
    "rgba": (PixelPlane(4, (0, 1, 2)),),
    "yuv420p": (PixelPlane(1, (0,)), _CHROMA, _CHROMA),
    "nv12": (PixelPlane(1, (0,)), PixelPlane(2, (0, 1), (2, 2))),
    "yuyv422": (PixelPlane(2, (0,)), PixelPlane(4, (1, 3), (2, 1))),
}
"""Planes of the formats that have kernels."""

ROWS, COLUMNS, ORIGIN, STRIDE, HEIGHT, WIDTH, TOP, LEFT, POSITIONS = range(9)
"""Positions of numbers: the picture's size in the input, its first element there and the distance of rows, the input's
size, the picture's place in it, and the first element of each of three channels."""

FIRST_PLANE, PLANE_NUMBERS, FIRST_NUMBER = 16, 8, 40
ROW_TAPS, ROW_TABLE, ROW_WEIGHTS, COLUMN_TAPS, COLUMN_TABLE, COLUMN_WEIGHTS, WINDOWS = range(7)
"""Positions of a plane's numbers: taps, table and weights of rows and of columns, and the windows of tiles."""

MATRIX, OFFSET, SCALE, SHIFT, FILL, BIAS, FIRST_WEIGHT = 0, 9, 12, 15, 18, 21, 24
"""Positions of weights: colours by colours, and what is added; scale, shift and margins of each channel; and what is
added before bytes are rounded."""

LINES = NARROWEST * TILE * 3
"""Elements of a tile of results; as many are needed for its lines."""

MIXED = NARROWEST * NARROWEST * 4
"""Elements of a block of mixed rows."""


def planes_of(format_name: str, channels: int) -> tuple[PixelPlane, ...]:
    """Return the planes that an input's channels are made of."""
    # Brightness is a plane of its own in all formats with several.
    return PLANES[format_name][:1] if channels == 1 else PLANES[format_name]


def mixes(format_name: str, channels: int) -> bool:
    """Test if channels of the input are sums of the picture's."""
    return len(PLANES[format_name]) > 1 or (channels == 1 and format_name != "gray")


class PictureForm(NamedTuple):
    """Form of a model's input, of any size."""

    channels: int
    dtype: str
    last: bool
    """True if channels are the last axis."""

    @classmethod
    def of(cls, layout: PictureLayout, dtype: str) -> PictureForm:
        """Return the form of an input."""
        return cls(layout.channels, dtype, layout.last)

    def kernel(self, pixel_format: str) -> str:
        """Return the name of the kernel for a format of pixels."""
        return f"{pixel_format}_{self.channels}_{self.dtype}_{'nhwc' if self.last else 'nchw'}"
