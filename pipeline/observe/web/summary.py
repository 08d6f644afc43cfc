"""Summary of an array for a page: kind, range, picture, top scores."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from typing import Any

import numpy as np

LARGEST = 256
"""Pixels per side of a picture, or of a sheet of pictures, at most."""

MOST = 16
"""Pictures of a batch on one sheet, at most."""

_SMALLEST = 8
"""Pixels per side; a smaller array is rather a list of scores than an image."""

_TALLEST = 4
"""Height over width at most; more is rather a list of boxes, which would fill the page."""

_CHANNELS = {1: 0, 3: 2, 4: 6}
"""PNG's colour type by the number of channels: grey, RGB, RGB with opacity."""


def picture(array: np.ndarray) -> bytes | None:
    """Return a PNG of one or several images, None for other arrays.

    An image is [height, width] of bytes, [height, width, channels] or [channels, height, width], of which there may be
    a batch, with 1, 3 (RGB) or 4 channels. Values other than bytes are taken as 0 to 1, else as 0 to 255 where they lie
    in there, else their smallest is black and their largest white.
    """
    images = _images(array)
    return None if images is None else png(_levels(_sheet(images)))


def png(pixels: np.ndarray) -> bytes:
    """Encode uint8 pixels [height, width, 1, 3 or 4 channels] as PNG."""
    height, width, channels = pixels.shape
    # Eight bits per channel; compression, filter and interlacing are the numbers 0 (PNG, 11.2.2).
    header = struct.pack(">2I5B", width, height, 8, _CHANNELS[channels], 0, 0, 0)
    # Each row begins with the number of its filter; 0 is none.
    rows = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))
    # As they are: to compress them would take ten times as long as all the rest, and they stay on this machine.
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 0)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _images(array: np.ndarray) -> np.ndarray | None:
    """Return [number, height, width, channels]."""
    if array.dtype.kind not in "buif" or not array.size:
        return None
    # Other matrices are rather scores or features than grey pictures.
    if array.ndim == 2 and array.dtype == np.uint8:
        array = array[..., None]
    batch = array if array.ndim == 4 else array[None]
    if batch.ndim != 4:
        return None
    if batch.shape[-1] not in _CHANNELS:
        # Channels first, unless the last axis could be them.
        batch = np.moveaxis(batch, 1, -1)
    height, width = batch.shape[1:3]
    fits = min(height, width) >= _SMALLEST and height <= _TALLEST * width
    return batch if fits and batch.shape[-1] in _CHANNELS else None


def _sheet(images: np.ndarray) -> np.ndarray:
    """Arrange the first images in rows, [height, width, channels], subsampled to fit."""
    images = images[:MOST]
    columns = math.ceil(math.sqrt(len(images)))
    rows = math.ceil(len(images) / columns)
    # Pixels are left out, and not averaged, which would take longer than all the rest.
    step = math.ceil(max(rows * images.shape[1], columns * images.shape[2]) / LARGEST)
    images = images[:, ::step, ::step]
    _, height, width, channels = images.shape
    tiles = np.zeros((rows * columns, height, width, channels), images.dtype)
    tiles[: len(images)] = images
    sheet = tiles.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    pixels: np.ndarray = sheet.reshape(rows * height, columns * width, channels)
    return pixels


def _levels(values: np.ndarray) -> np.ndarray:
    if values.dtype == np.uint8:
        return values
    values = values.astype(np.float32)
    low, high = float(values.min()), float(values.max())
    if not math.isfinite(low + high):
        # A network that diverges shows infinities and NaN as 0, and the rest in its own range.
        np.nan_to_num(values, copy=False, posinf=0.0, neginf=0.0)
        low, high = float(values.min()), float(values.max())
    # Pictures from 0 to 1 and from 0 to 255 keep their brightness; others are spread.
    if low >= 0 and high <= 255:
        low, high = 0.0, 1.0 if high <= 1 else 255.0
    values -= low
    # Of a single value there is no range.
    values *= 255 / ((high - low) or 1.0)
    levels: np.ndarray = values.astype(np.uint8)
    return levels


BEST = 5
"""Number of listed scores."""

_LOOKED_AT = 10_000
"""Values behind an array's numbers: all of a large one would take the interpreter from the workers for long."""

_MOST_SCORES = 100_000
"""Longer rows are hardly scores of classes, and take long to sort."""


def summary(name: str, array: np.ndarray, image: np.ndarray | None = None) -> dict[str, Any]:
    """Describe an array in plain values.

    Its picture is `image`, if that is given, else the array itself if it looks like one.  Its ``low``, ``high`` and
    ``mean`` rest on at most some 10,000 of its values, evenly spread; ``best`` lists the largest scores of its first
    row, and ``rows`` the index of the largest one in each of the first rows.
    """
    description: dict[str, Any] = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
    if array.dtype.kind not in "buif" or not array.size:
        return description
    # Every n-th value of the whole array, since its beginning alone may be a border.
    values = array.reshape(-1)[:: max(1, array.size // _LOOKED_AT)]
    description |= {
        "low": float(values.min()),
        "high": float(values.max()),
        "mean": float(values.mean(dtype=np.float64)),
    }
    if (png := picture(array if image is None else image)) is not None:
        description["picture"] = data_url("png", png)
    elif array.ndim in (1, 2) and 1 < array.shape[-1] <= _MOST_SCORES:
        description |= _scores(np.atleast_2d(array)[:MOST])
    return description


def data_url(kind: str, data: bytes) -> str:
    """Return a picture as an address that has it inside."""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def _scores(rows: np.ndarray) -> dict[str, Any]:
    # Of the first row alone: a batch would fill the page.
    order = np.argsort(rows[0])[: -BEST - 1 : -1]
    return {"best": [[int(index), float(rows[0, index])] for index in order], "rows": rows.argmax(axis=1).tolist()}
