"""Scenes: pictures with handwritten digits of many sizes, angles and colours, and their boxes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.demo import digits

SIZES = 0.14, 0.62
"""Least and greatest longer side of a digit, relative to the picture's shorter side."""

ANGLE = np.pi / 3
"""Largest turn in radians, in both directions. Upside down, a 6 would be a 9."""

MOST_DIGITS = 7
CONTRAST = 55.0
"""Least distance of a digit's brightness to that of its background, of 255."""

DETAIL = 160
"""Pixels of a picture's longer side that its edges are drawn for: larger pictures are as soft, like enlarged ones."""

_TRIALS = 30
_GREY = np.array([0.299, 0.587, 0.114])

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scene:
    """A picture and the digits on it."""

    picture: NDArray[np.uint8]
    """Red, green and blue. Shape (height, width, 3)."""
    boxes: NDArray[np.float32]
    """Left, top, right and bottom of the digits in pixels. Shape (N, 4)."""
    classes: NDArray[np.int64]
    """The digits. Shape (N,)."""


def scenes(seed: int, width: int = 640, height: int = 480, *, training: bool = False) -> Iterator[Scene]:
    """Yield scenes without end, equal ones for equal seeds.

    Raises `MissingExtra` if scikit-learn, which ships the digits, is not installed.

    `training` is True for the digits that the detector is trained with; else those held out.
    """
    images, labels = digits.training() if training else digits.held_out()
    # Without ink around it, the outermost row of an image would go on for ever.
    padded_images = np.pad(images[:, 0, 0], ((0, 0), (2, 2), (2, 2)))
    random = np.random.default_rng(seed)
    while True:
        yield _scene(random, padded_images, labels, (height, width))


def _scene(random: np.random.Generator, images: digits.Images, labels: digits.Labels, size: tuple[int, int]) -> Scene:
    picture = _background(random, *size)
    boxes: list[tuple[int, int, int, int]] = []
    classes: list[int] = []
    # The first digits find more room, so that the count of digits varies by itself, too.
    for index in random.integers(0, len(images), random.integers(1, MOST_DIGITS + 1)):
        longer_side = min(size) * SIZES[0] * (SIZES[1] / SIZES[0]) ** random.random()
        glyph = _glyph(random, images[index], longer_side, DETAIL / max(size))
        if (corner := _free_corner(random, glyph.shape, size, boxes)) is not None:
            top, left = corner
            bottom, right = top + glyph.shape[0], left + glyph.shape[1]
            _paint(random, picture[top:bottom, left:right], glyph)
            boxes.append((left, top, right, bottom))
            classes.append(int(labels[index]))
    # The grain of a camera's sensor.
    picture += random.normal(0, random.uniform(0, 8), picture.shape)
    return Scene(
        np.clip(np.rint(picture), 0, 255).astype(np.uint8),
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array(classes, np.int64),
    )


def _background(random: np.random.Generator, height: int, width: int) -> Floats:
    """Paint a coarse pattern of colours and, on it, plain shapes."""
    # Mostly greys with a tint, as in rooms and streets.
    tint = random.normal(0, 35, 3)
    coarse = random.uniform(20, 235) + tint + random.normal(0, random.uniform(5, 35), (*random.integers(2, 7, 2), 3))
    rows, columns = (digits.interpolation(*sides) for sides in zip(coarse.shape, (height, width), strict=False))
    picture: Floats = np.einsum("yi,ijc,xj->yxc", rows, coarse, columns, optimize=True)
    y, x = np.ogrid[:height, :width]
    for _ in range(random.integers(0, 7)):
        centre_y, centre_x = random.uniform(0, height), random.uniform(0, width)
        long, short = min(height, width) * random.uniform(0.01, 0.5, 2)
        angle = random.uniform(0, np.pi)
        along = (np.cos(angle) * (x - centre_x) + np.sin(angle) * (y - centre_y)) / long
        across = (np.cos(angle) * (y - centre_y) - np.sin(angle) * (x - centre_x)) / short
        # Ellipses, and bars of any width.
        inside = along**2 + across**2 < 1 if random.random() < 0.4 else np.maximum(abs(along), abs(across)) < 1
        picture[inside] += random.normal(0, 40) + random.normal(0, 25, 3)
    return np.clip(picture, 0, 255)


def _glyph(random: np.random.Generator, image: digits.Images, longer_side: float, detail: float) -> Floats:
    """Return the opacity of a turned digit, cut to its box."""
    angle, slant, stretch = random.uniform(-ANGLE, ANGLE), random.uniform(-0.2, 0.2), random.uniform(0.8, 1.2)
    cosine, sine = np.cos(angle), np.sin(angle)
    # From the picture's pixels to the image's: turn, then slant and stretch.
    matrix = np.array([[1, 0], [slant, stretch]]) @ np.array([[cosine, -sine], [sine, cosine]])
    # In two passes: the first, coarse one tells how large the turned digit is.
    extent = 1.5 * len(image)
    rows, columns = _ink(_sample(image, matrix, extent, 48, 48))
    scale = max(rows.stop - rows.start, columns.stop - columns.start) / 48 * extent / longer_side
    side = max(1, round(extent / scale))
    opacity = _sample(image, matrix, extent, side, side * detail)
    return opacity[_ink(opacity)]


def _sample(image: digits.Images, matrix: Floats, extent: float, side: int, detail: float) -> Floats:
    """Return the opacity on a square of `side` pixels around the digit, with edges as on one of `detail` pixels."""
    positions = ((np.arange(side) + 0.5) / side - 0.5) * extent
    y, x = np.meshgrid(positions, positions, indexing="ij")
    centre = (len(image) - 1) / 2
    row, column = (
        np.clip(part + centre, 0, len(image) - 1.001) for part in np.einsum("ij,jyx->iyx", matrix, np.stack([y, x]))
    )
    above, before = row.astype(int), column.astype(int)
    down, right = row - above, column - before
    lines = [image[above + step, before] * (1 - right) + image[above + step, before + 1] * right for step in (0, 1)]
    ink = lines[0] * (1 - down) + lines[1] * down
    sharpness = min(6.0, 0.3 * detail / len(image) + 1.5)
    opacity: Floats = np.clip((ink - 0.5) * sharpness + 0.5, 0, 1)
    return opacity


def _ink(opacity: Floats) -> tuple[slice, slice]:
    """Return the rows and columns that have ink."""
    inked = opacity > 0.5
    rows, columns = np.flatnonzero(inked.any(1)), np.flatnonzero(inked.any(0))
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


def _free_corner(
    random: np.random.Generator,
    glyph: tuple[int, ...],
    size: tuple[int, int],
    boxes: list[tuple[int, int, int, int]],
) -> tuple[int, int] | None:
    """Return a place that touches no other digit, or None."""
    if glyph[0] >= size[0] or glyph[1] >= size[1]:
        return None
    for _ in range(_TRIALS):
        top, left = (int(random.integers(0, room - side + 1)) for room, side in zip(size, glyph, strict=False))
        if all(left + glyph[1] < box[0] or box[2] < left or top + glyph[0] < box[1] or box[3] < top for box in boxes):
            return top, left
    return None


def _paint(random: np.random.Generator, picture: Floats, opacity: Floats) -> None:
    """Paint a digit in a colour that stands out."""
    background = float(picture.mean((0, 1)) @ _GREY)
    brightness = random.uniform(CONTRAST, 255)
    # Darker or brighter by so much, whichever has room.
    darker, brighter = background - brightness, background + brightness
    target = darker if darker > 0 and (brighter > 255 or random.random() < 0.5) else min(brighter, 255.0)
    if abs(target - background) < CONTRAST:
        target = 0.0 if background > 127 else 255.0
    colour = np.clip(target + random.normal(0, 30, 3), 0, 255)
    picture += opacity[..., None] * (colour + (target - colour @ _GREY) - picture)
