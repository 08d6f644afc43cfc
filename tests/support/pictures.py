"""Pictures prepared by plain NumPy in float64, one step after the other, as a reference for the compiled kernels."""

from __future__ import annotations

import math

import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.picture.geometry import fit
from pipeline.picture.pixels import Pixels

LUMA = (0.299, 0.587, 0.114)
LIMITED = ("yuv420p", "nv12", "yuyv422")


def random_picture(pixels: Pixels, seed: int = 0) -> np.ndarray:
    """Return noise of the format of `pixels`."""
    return np.random.default_rng(seed).integers(0, 256, pixels.shape, dtype=np.uint8)


def to_colours(pixels: Pixels, array: np.ndarray) -> np.ndarray:
    """Return red, green and blue as float64 [height, width, 3], not limited; grey has one channel."""
    if pixels.format == "gray":
        return array[..., None].astype(float)
    if pixels.format in ("rgb24", "rgba", "bgr24", "bgra"):
        colours = array[..., :3].astype(float)
        return colours[..., ::-1] if pixels.format.startswith("bgr") else colours
    y, u, v = _planes(pixels, array.astype(float))
    if pixels.format in LIMITED:
        y, u, v = (y - 16) * 255 / 219, (u - 128) * 255 / 224, (v - 128) * 255 / 224
    else:
        u, v = u - 128, v - 128
    red, blue = y + 2 * (1 - LUMA[0]) * v, y + 2 * (1 - LUMA[2]) * u
    # Brightness is the weighted sum of all three.
    return np.stack([red, (y - LUMA[0] * red - LUMA[2] * blue) / LUMA[1], blue], axis=2)


def _planes(pixels: Pixels, array: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    height, width = pixels.height, pixels.width
    if pixels.format == "yuyv422":
        return array[..., 0], array[:, ::2, 1].repeat(2, axis=1), array[:, 1::2, 1].repeat(2, axis=1)
    colours = array[height:].reshape(-1)
    halves = (height // 2, width // 2)
    pairs = colours.reshape(*halves, 2).transpose(2, 0, 1) if pixels.format == "nv12" else colours.reshape(2, *halves)
    u, v = (half.repeat(2, axis=0).repeat(2, axis=1) for half in pairs)
    return array[:height], u, v


def resize(picture: np.ndarray, size: tuple[int, int], sampling: str) -> np.ndarray:
    """Resize float64 [height, width, channels] by a matrix for each axis."""
    across, down = (shares(extent, new, sampling) for extent, new in zip(picture.shape[1::-1], size, strict=True))
    resized: np.ndarray = np.einsum("yh,hwc,xw->yxc", down, picture, across)
    return resized


def shares(extent: int, resized: int, sampling: str) -> np.ndarray:
    """Return the share [new pixels, pixels] of each pixel in a new one."""
    matrix = np.zeros((resized, extent))
    for new in range(resized):
        centre = (new + 0.5) * extent / resized
        if sampling == "opencv":
            before = math.floor(centre - 0.5)
            for pixel, share in ((before, 1 - (centre - 0.5 - before)), (before + 1, centre - 0.5 - before)):
                matrix[new, min(max(pixel, 0), extent - 1)] += share
            continue
        stretch = max(extent / resized, 1)
        curve, reach = (cubic, 2) if sampling == "bicubic" else (triangle, 1)
        # Pillow's window ends where half of a pixel is outside.
        for pixel in range(
            max(int(centre - reach * stretch + 0.5), 0), min(int(centre + reach * stretch + 0.5), extent)
        ):
            matrix[new, pixel] = curve(abs(pixel + 0.5 - centre) / stretch)
    normalised: np.ndarray = matrix / matrix.sum(axis=1, keepdims=True)
    return normalised


def triangle(distance: float) -> float:
    """Linear interpolation's share at a distance."""
    return max(1 - distance, 0.0)


def cubic(distance: float) -> float:
    """Cubic convolution's share at a distance, with a slope of -0.5."""
    if distance < 1:
        return 1.5 * distance**3 - 2.5 * distance**2 + 1
    return -0.5 * distance**3 + 2.5 * distance**2 - 4 * distance + 2 if distance < 2 else 0.0


def prepare(
    pixels: Pixels, array: np.ndarray, room: tuple[int, int], channels: int, rules: Preparation
) -> tuple[np.ndarray, np.ndarray]:
    """Return bytes as float64 [height, width, channels] in the order of `rules`, before they are normalised.

    The second array is True where the picture is, and not its margins.
    """
    geometry = fit(
        rules.resize, (pixels.width, pixels.height), room,
        margin=rules.margin, rounding=rules.rounding, fraction=rules.fraction,
    )  # fmt: skip
    colours = to_colours(pixels, array)
    if channels == 1 and colours.shape[2] == 3:
        colours = colours @ np.array(LUMA)[:, None]
    colours = np.broadcast_to(colours, (*colours.shape[:2], channels))
    resized = resize(colours, (geometry.width, geometry.height), rules.sampling).clip(0, 255)
    resized = resized[..., ::-1] if rules.channels == "bgr" else resized
    values, inside = np.full((room[1], room[0], channels), float(rules.fill)), np.zeros(room[::-1], bool)
    # Pixel by pixel, so that what stands out of the room is simply not there.
    for y in range(geometry.height):
        for x in range(geometry.width):
            row, column = y + geometry.top, x + geometry.left
            if 0 <= row < room[1] and 0 <= column < room[0]:
                values[row, column], inside[row, column] = resized[y, x], True
    return values, inside


def normalise(values: np.ndarray, rules: Preparation) -> np.ndarray:
    """Return bytes as the model's values, in float64."""
    real: np.ndarray = (values * rules.white / 255 - np.array(rules.mean)) / np.array(rules.std)
    return real
