"""Geometry: the position of a picture in a model's input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.core.model_card import RESIZE
from pipeline.errors import InputError
from pipeline.picture.resampling import interpolate


@dataclass(frozen=True)
class Geometry:
    """A picture's place in the model's input, in pixels."""

    width: int
    height: int
    """Size of the picture after it was resized."""
    left: int
    top: int
    """Position of its corner; below zero if it stands out."""
    scale_x: float
    scale_y: float
    """The model's pixels for one of the picture's. In a letterbox they are the same number, as in training, although
    its sides are rounded to pixels."""
    room: tuple[int, int] = (0, 0)
    """Width and height of the model's input."""

    def back(self, x: float, y: float) -> tuple[float, float]:
        """Map a point of the model's input back to the picture."""
        return (x - self.left) / self.scale_x, (y - self.top) / self.scale_y

    def back_points(self, points: np.ndarray) -> np.ndarray:
        """Map points [..., x, y] of the model's input back to the picture."""
        offset, scale = np.array((self.left, self.top), np.float32), np.array((self.scale_x, self.scale_y), np.float32)
        mapped: np.ndarray = (points - offset) / scale
        return mapped

    def back_map(
        self,
        array: np.ndarray,
        size: tuple[int, int],
        window: tuple[slice, slice] = (slice(None), slice(None)),
        *,
        nearest: bool = False,
    ) -> np.ndarray:
        """Interpolate a map over the model's input at a picture's pixels.

        The map has numbers [..., height, width] over all of the input, at any resolution. `size` is the picture's width
        and height, `window` the columns and rows of interest. Classes, between which there is nothing, want the
        `nearest` number.
        """
        columns, rows = (
            # Centres of pixels lie half a pixel behind their beginnings, in both.  Margins are no part of the picture:
            # at its edge there is its last pixel, as if they had been cut off.
            (np.clip((np.arange(extent)[part] + 0.5) * resized / extent, 0.5, resized - 0.5) + begin) * cells / room
            - 0.5
            for extent, resized, begin, cells, room, part in zip(
                size,
                (self.width, self.height),
                (self.left, self.top),
                array.shape[:-3:-1],
                self.room,
                window,
                strict=True,
            )
        )
        if nearest:
            rows, columns = np.floor(rows + 0.5), np.floor(columns + 0.5)
        return interpolate(array, rows, columns)

    @property
    def margins(self) -> bool:
        """True if part of the input stays free."""
        right, bottom = self.left + self.width, self.top + self.height
        return self.left > 0 or self.top > 0 or right < self.room[0] or bottom < self.room[1]


def fit(  # noqa: PLR0913 - all but the first three by keyword
    resize: str,
    picture: tuple[int, int],
    room: tuple[int, int],
    *,
    margin: str = "centre",
    rounding: str = "nearest",
    fraction: float = 1.0,
) -> Geometry:
    """Fit a picture into `room`.

    Raises `InputError` if `resize` is unknown. To ``"stretch"`` takes all of both, and proportions change; to
    ``"letterbox"`` all of the picture, with margins; to ``"crop"`` all of the room, and what stands out is cut off.
    `margin`, `rounding` and `fraction` are those of `Preparation`.
    """
    if resize not in RESIZE:
        raise InputError(f"resize is {resize!r}; it must be {', '.join(map(repr, RESIZE))}")
    (width, height), (room_width, room_height) = picture, room
    # The expressions below are those of the exporting projects, so that their floats round alike.
    scale_x, scale_y = room_width / width, room_height / height
    if resize == "stretch":
        return Geometry(*room, 0, 0, scale_x, scale_y, room)
    if resize == "crop" and rounding == "down":
        return _crop_down(picture, room, fraction)
    # One factor for both directions: the smaller keeps all of the picture, the larger fills all of the room.
    scale = min(scale_x, scale_y) if resize == "letterbox" else max(scale_x, scale_y) / fraction
    to_pixels = round if rounding == "nearest" else int
    # A picture that is much wider than high would otherwise lose its last row.
    size = max(1, to_pixels(width * scale)), max(1, to_pixels(height * scale))
    if resize == "letterbox" and margin == "corner":
        return Geometry(*size, 0, 0, scale, scale, room)
    # In the middle; negative where the picture is larger than the room, as for `crop`.
    return Geometry(*size, (room_width - size[0]) // 2, (room_height - size[1]) // 2, scale, scale, room)


def _crop_down(picture: tuple[int, int], room: tuple[int, int], fraction: float) -> Geometry:
    """Fit as torchvision and timm: ``Resize(256)``, then ``CenterCrop(224)``."""
    # The side with less to spare is resized first, and the other one after it.
    axis = 0 if room[0] * picture[1] >= room[1] * picture[0] else 1
    # A fraction such as 224 / 232 must come out at 232 and not below.
    short = int(room[axis] / fraction + 1e-6)
    long = max(room[1 - axis], int(short * picture[1 - axis] / picture[axis]))
    size = (short, long) if axis == 0 else (long, short)
    left, top = (-round((extent - inside) / 2) for extent, inside in zip(size, room, strict=True))
    return Geometry(*size, left, top, size[0] / picture[0], size[1] / picture[1], room)
