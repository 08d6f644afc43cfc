"""Canvas: lines, dots, text and masks on a picture's own planes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from operator import mul
from typing import Any

import numpy as np

from pipeline.picture.pixels import Pixels
from pipeline.system.optional import require

Colour = tuple[int, int, int]
"""Red, green and blue."""

BLACK: Colour = (0, 0, 0)

LINE_HEIGHT = 1.1
"""Height of a line of text, in sizes of its font."""

# Kr and Kb of ITU-R BT.709 and BT.2020, by FFmpeg's number; all else is read by BT.601, as FFmpeg's scaler does.
_LUMA_SHARES = {1: (0.2126, 0.0722), 9: (0.2627, 0.0593), 10: (0.2627, 0.0593)}
_FULL_RANGE = 2
"""AVCOL_RANGE_JPEG of FFmpeg."""

_CACHED_WORDS = 1024
"""Words kept as pictures. A score has a hundred, and a large one takes 20 kB."""


@dataclass(frozen=True, eq=False)
class Component:
    """Meaning of a plane's samples, such as red or brightness; equal ones are one object."""

    shares: tuple[float, ...] = ()
    """Shares of red, green and blue; none in a picture without colours, where all that is bright stands out."""
    black: float = 0.0
    """Its value for black."""
    across: int = 1
    down: int = 1
    """Pixels of the picture per sample."""

    def value(self, colour: Colour) -> int:
        """Return the sample of a colour."""
        value = sum(map(mul, self.shares, colour)) + self.black if self.shares else max(colour)
        return min(255, round(value))


class Canvas:
    """Picture to draw on, in its own format, with a pen and a font that suit its size.

    The bytes of the array, which are drawn on, are adjacent in memory.
    """

    def __init__(self, array: np.ndarray, pixels: Pixels) -> None:
        self.width, self.height = pixels.width, pixels.height
        # A thirtieth of the shorter side can be read when the video fills a screen; below 10 pixels nothing can.
        self.size = max(10, min(self.width, self.height) // 30)
        self.pen = max(1, self.size // 8)
        self._components = choose_components(pixels.format, pixels.colorspace, pixels.color_range)
        self._planes = split_planes(array, pixels)

    def box(self, corner: Sequence[float], opposite: Sequence[float], colour: Colour) -> None:
        """Draw the outline of a rectangle between two points."""
        before, after = (self.pen - 1) // 2, self.pen // 2 + 1
        # Some detectors exchange the corners.
        (left, right), (top, bottom) = (sorted(map(int, ends)) for ends in zip(corner, opposite, strict=True))
        x = [max(0, end) for end in (left - before, left + after, right - before, right + after)]
        y = [max(0, end) for end in (top - before, top + after, bottom - before, bottom + after)]
        for plane, across, down, value in self._places(colour):
            # Samples that are covered in part count, or thin lines would have no colour.
            x0, x1, x2, x3 = x[0] // across, -(-x[1] // across), x[2] // across, -(-x[3] // across)
            y0, y1, y2, y3 = y[0] // down, -(-y[1] // down), y[2] // down, -(-y[3] // down)
            plane[y0:y1, x0:x3] = plane[y2:y3, x0:x3] = value
            plane[y0:y3, x0:x1] = plane[y0:y3, x2:x3] = value

    def lines(self, starts: np.ndarray, ends: np.ndarray, colour: Colour) -> None:
        """Draw lines as thick as the pen, from points [N, x and y] to others."""
        if len(starts):
            self._scatter(*_trace_lines(starts, ends, self.pen), colour)

    def dots(self, centres: np.ndarray, radius: float, colour: Colour, hole: float = 0.0) -> None:
        """Draw discs around points [N, x and y], or rings around a hole of another radius."""
        places = centres.round().astype(int)[..., None] + _ring(radius, hole)
        self._scatter(places[:, 1], places[:, 0], colour)

    def text(self, corner: tuple[float, float], text: str, colour: Colour) -> None:
        """Write on black, since the picture below may have any colour."""
        *words, last = text.split(" ")
        texts = [*(f"{word} " for word in words), last]
        drawn = [_draw_word(self.size, word, colour, self._components) for word in texts]
        # At the right edge it begins further left, so that its end can be read.
        left = min(int(corner[0]), self.width - sum(width for width, _ in drawn))
        # Even, so that samples of colour lie below the same pixels of a word at any place.
        left, top = max(0, left) & ~1, max(0, int(corner[1])) & ~1
        for width, parts in drawn:
            for plane, component, part in zip(self._planes, self._components, parts, strict=True):
                region = plane[top // component.down :, left // component.across :][: len(part), : part.shape[1]]
                region[...] = part[: region.shape[0], : region.shape[1]]
            left += width

    def paint(self, mask: np.ndarray, colour: Colour, left: int = 0, top: int = 0) -> None:
        """Mix the pixels of a mask, bool [height, width], with a colour, half and half."""
        for plane, across, down, value in self._places(colour):
            # From the first whole sample on.
            part = mask[-top % down :: down, -left % across :: across]
            region = plane[-(-top // down) :, -(-left // across) :][: part.shape[0], : part.shape[1]]
            np.copyto(region, region // 2 + value // 2, where=part[: region.shape[0], : region.shape[1]])

    def _scatter(self, rows: np.ndarray, columns: np.ndarray, colour: Colour) -> None:
        """Set pixels, of which some may lie outside."""
        inside = (rows >= 0) & (rows < self.height) & (columns >= 0) & (columns < self.width)
        rows, columns = rows[inside], columns[inside]
        for plane, across, down, value in self._places(colour):
            plane[rows // down, columns // across] = value

    def _places(self, colour: Colour) -> Iterator[tuple[np.ndarray, int, int, int]]:
        """Yield each plane, its pixels per sample across and down, and the colour's sample."""
        values = _values(self._components, colour)
        for plane, component, value in zip(self._planes, self._components, values, strict=True):
            yield plane, component.across, component.down, value


def split_planes(array: np.ndarray, pixels: Pixels) -> list[np.ndarray]:
    """Return the samples of each of a picture's components in place, uint8 [height, width]."""
    height, width = pixels.height, pixels.width
    if pixels.format == "gray":
        return [array]
    if pixels.format == "yuyv422":
        return [array[..., 0], array[:, 0::2, 1], array[:, 1::2, 1]]
    if pixels.format == "nv12":
        pairs = array[height:].reshape(height // 2, width // 2, 2)
        return [array[:height], pairs[..., 0], pairs[..., 1]]
    if pixels.format in ("yuv420p", "yuvj420p"):
        return [array[:height], *array[height:].reshape(2, height // 2, width // 2)]
    return [array[..., channel] for channel in range(3)]


@cache
def choose_components(format_name: str, colorspace: int, color_range: int) -> tuple[Component, ...]:
    """Return the components of a format, in the order of `split_planes`; colours by FFmpeg's numbers."""
    if format_name == "gray":
        return (Component(),)
    if format_name in ("bgr24", "bgra", "rgb24", "rgba"):
        channels = [Component(tuple(float(part == channel) for part in range(3))) for channel in range(3)]
        return tuple(channels if format_name.startswith("rgb") else channels[::-1])
    red, blue = _LUMA_SHARES.get(colorspace, (0.299, 0.114))
    shares = np.array([red, 1 - red - blue, blue])
    is_full = color_range == _FULL_RANGE or format_name == "yuvj420p"
    # Limited range has 219 steps from 16 on for brightness, and 224 around 128 for colour.
    light, tint, black = (1.0, 1.0, 0.0) if is_full else (219 / 255, 224 / 255, 16.0)
    # Distances of blue and red to the brightness.
    u, v = (np.array([0, 0, 1]) - shares) / (1 - blue) / 2, (np.array([1, 0, 0]) - shares) / (1 - red) / 2
    down = 1 if format_name == "yuyv422" else 2
    colours = (Component(tuple(part * tint), 128.0, 2, down) for part in (u, v))
    return (Component(tuple(shares * light), black), *colours)


@lru_cache(_CACHED_WORDS)
def _values(components: tuple[Component, ...], colour: Colour) -> list[int]:
    return [component.value(colour) for component in components]


def _trace_lines(starts: np.ndarray, ends: np.ndarray, thickness: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of lines' pixels, as runs across for each step along the longer side."""
    ends, is_steep = ends - starts, np.abs(ends - starts).argmax(1).astype(bool)
    # As if x were the longer side, from the lower end on.
    starts, ends = (np.where(is_steep[:, None], points[:, ::-1], points) for points in (starts, starts + ends))
    is_back = (starts[:, 0] > ends[:, 0])[:, None]
    starts, ends = np.where(is_back, ends, starts), np.where(is_back, starts, ends)
    delta = ends - starts
    slopes = delta[:, 1] / np.maximum(delta[:, 0], 1e-9)
    runs = np.maximum(1, np.round(thickness * np.hypot(1.0, slopes))).astype(int)
    # 1. The steps of all lines, one behind the other, and where each crosses its line.
    counts = delta[:, 0].astype(int) + 1
    lines = np.repeat(np.arange(len(counts)), counts)
    steps = np.arange(len(lines)) - np.repeat(np.cumsum(counts) - counts, counts)
    along = starts[lines, 0].astype(int) + steps
    middles = starts[lines, 1] + slopes[lines] * steps - (runs[lines] - 1) / 2
    # 2. The pixels of each step.
    beside = np.repeat(np.floor(middles + 0.5).astype(int), runs[lines])
    beside += np.arange(len(beside)) - np.repeat(np.cumsum(runs[lines]) - runs[lines], runs[lines])
    along, steep = np.repeat(along, runs[lines]), np.repeat(is_steep[lines], runs[lines])
    return np.where(steep, along, beside), np.where(steep, beside, along)


@lru_cache(64)
def _ring(radius: float, hole: float) -> np.ndarray:
    """Return the places [x and y, pixels] of a disc with a hole."""
    side = int(radius)
    y, x = np.mgrid[-side : side + 1, -side : side + 1]
    distances = x**2 + y**2
    return np.stack([x, y])[:, (distances <= radius**2) & (distances >= hole**2)]


@lru_cache(_CACHED_WORDS)
def _draw_word(size: int, word: str, colour: Colour, components: tuple[Component, ...]) -> tuple[int, list[np.ndarray]]:
    """Return the width of a word on black, even as its height is, and its samples of each component."""
    font = _font(size)
    extents = max(font.getlength(word), font.getbbox(word)[2]), size * LINE_HEIGHT
    width, height = (int(extent + 1.9) // 2 * 2 for extent in extents)
    image = require("PIL.Image", "images", "drawing onto pictures").new("L", (width, height))
    # Higher than the font's own line by a part of what is free above its capitals.
    place = 0, -size // 8
    require("PIL.ImageDraw", "images", "drawing onto pictures").Draw(image).text(place, word, font=font, fill=255)
    glyphs = np.asarray(image, np.float32) / 255
    parts = []
    for component, black, full in zip(components, _values(components, BLACK), _values(components, colour), strict=True):
        across, down = component.across, component.down
        shares = glyphs.reshape(height // down, down, width // across, across).mean((1, 3))
        parts.append((black + (full - black) * shares).round().astype(np.uint8))
    return width, parts


@cache
def _font(size: int) -> Any:
    return require("PIL.ImageFont", "images", "drawing onto pictures").load_default(size)
