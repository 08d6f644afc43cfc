"""Geometry: the position of a picture in a model's input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.core.model_card import RESIZE
from pipeline.errors import InputError
from pipeline.picture.resampling import interpolate


@dataclass(frozen=True)
class Geometry:
    """A picture's place in the model's input, in pixels.

    Attributes
    ----------
    width, height : int
        Size of the picture after it was resized.
    left, top : int
        Position of its corner; below zero if it stands out.
    scale_x, scale_y : float
        The model's pixels for one of the picture's.
    room : (int, int)
        Width and height of the model's input.
    """

    width: int
    height: int
    left: int
    top: int
    scale_x: float
    scale_y: float
    room: tuple[int, int] = (0, 0)

    def back(self, x: float, y: float) -> tuple[float, float]:
        """Map a point of the model's input back to the picture."""
        return (x - self.left) / self.scale_x, (y - self.top) / self.scale_y

    def back_points(self, points: np.ndarray) -> np.ndarray:
        """Map points [..., x, y] of the model's input back to the picture."""
        offset, scale = np.array((self.left, self.top), np.float32), np.array((self.scale_x, self.scale_y), np.float32)
        mapped: np.ndarray = (points - offset) / scale
        return mapped

    def back_map(self, array: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        """Interpolate a map over the model's input at a picture's pixels.

        Parameters
        ----------
        array : array
            Floats [..., height, width] over all of the input, at any resolution.
        size : (int, int)
            Width and height of the picture.
        """
        columns, rows = (
            # Centres of pixels lie half a pixel behind their beginnings, in both.
            ((np.arange(extent) + 0.5) * scale + begin) * cells / room - 0.5
            for extent, scale, begin, cells, room in zip(
                size, (self.scale_x, self.scale_y), (self.left, self.top), array.shape[:-3:-1], self.room, strict=True
            )
        )
        return interpolate(array, rows, columns)

    @property
    def margins(self) -> bool:
        """True if part of the input stays free."""
        return self.left > 0 or self.top > 0


def fit(resize: str, picture: tuple[int, int], room: tuple[int, int]) -> Geometry:
    """Fit a picture into `room`.

    Parameters
    ----------
    resize : str
        ``"stretch"``: all of both, proportions change.  ``"letterbox"``: all of the picture, in the middle, with
        margins.  ``"crop"``: all of the room, and what stands out is cut off.
    picture, room : (int, int)
        Widths and heights.

    Raises
    ------
    InputError
        If `resize` is unknown.
    """
    if resize not in RESIZE:
        raise InputError(f"resize is {resize!r}; it must be {', '.join(map(repr, RESIZE))}")
    (width, height), (room_width, room_height) = picture, room
    scale_x, scale_y = room_width / width, room_height / height
    if resize != "stretch":
        # One factor for both directions: the smaller keeps all of the picture, the larger fills all of the room.
        scale_x = scale_y = min(scale_x, scale_y) if resize == "letterbox" else max(scale_x, scale_y)
    # A picture that is much wider than high would otherwise lose its last row.
    size = max(1, round(width * scale_x)), max(1, round(height * scale_y))
    # In the middle; negative where the picture is larger than the room, as for `crop`.
    return Geometry(*size, (room_width - size[0]) // 2, (room_height - size[1]) // 2, scale_x, scale_y, room)
