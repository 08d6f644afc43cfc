"""ROS images: `sensor_msgs/Image` and `CompressedImage` as pictures, from any middleware."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.picture.pixels import Pixels, choose_pixels, library

ENCODINGS = {
    "rgb8": "rgb24",
    "bgr8": "bgr24",
    "rgba8": "rgba",
    "bgra8": "bgra",
    "mono8": "gray",
    # Names of OpenCV's types say nothing of the order of colours, which is blue first in OpenCV.
    "8UC1": "gray",
    "8UC3": "bgr24",
    "8UC4": "bgra",
    "yuv422_yuy2": "yuyv422",
    "yuyv": "yuyv422",
    "nv12": "nv12",
    # The bytes of a pair are exchanged in these.
    "uyvy": "yuyv422",
    "yuv422": "yuyv422",
    "nv21": "nv12",
    # Their high bytes are read, as cv_bridge does.
    "rgb16": "rgb24",
    "bgr16": "bgr24",
    "rgba16": "rgba",
    "bgra16": "bgra",
    "mono16": "gray",
    # FFmpeg makes RGB of them.
    **{f"bayer_{order}8": f"bayer_{order}8" for order in ("rggb", "bggr", "gbrg", "grbg")},
}
"""ROS's name of an encoding -> FFmpeg's."""

DEPTHS = {"16UC1": "u2", "32FC1": "f4"}
"""Encoding -> dtype of pixels that are distances, and no colours."""

CODECS = {b"\xff\xd8": "mjpeg", b"\x89P": "png"}
"""First bytes of a compressed image -> its codec."""


def read_picture(message: Any) -> tuple[Pixels | None, np.ndarray]:
    """Return an `Image`'s format and bytes, in place without padding; no format for distances.

    The message has ``encoding``, ``height``, ``width``, ``step`` and ``data`` (bytes or an array of them). Raises
    `InputError` if the encoding is unknown, or sizes contradict each other.
    """
    encoding, width, height = str(message.encoding), int(message.width), int(message.height)
    if encoding in DEPTHS:
        dtype = np.dtype(f"{'>' if message.is_bigendian else '<'}{DEPTHS[encoding]}")
        depths = np.ascontiguousarray(_rows(message, height, width * dtype.itemsize)).view(dtype)
        return None, depths.astype(dtype.newbyteorder("="), copy=False)
    if encoding not in ENCODINGS:
        raise InputError(
            f"an image is encoded as {encoding!r}, which cannot be read; supported are "
            f"{', '.join((*ENCODINGS, *DEPTHS))}"
        )
    pixels = Pixels(ENCODINGS[encoding], width, height)
    is_wide = encoding.endswith("16")
    rows = _rows(message, pixels.shape[0], math.prod(pixels.shape[1:]) * (2 if is_wide else 1))
    if is_wide:
        rows = rows[:, 0 if message.is_bigendian else 1 :: 2]
    elif encoding in ("uyvy", "yuv422"):
        rows = rows.reshape(len(rows), -1, 2)[..., ::-1]
    elif encoding == "nv21":
        rows = np.concatenate([rows[:height], rows[height:].reshape(-1, 2)[:, ::-1].reshape(-1, width)])
    array = np.ascontiguousarray(rows).reshape(pixels.shape)
    if encoding.startswith("bayer"):
        return Pixels("rgb24", width, height), pixels.rgb(array)
    return pixels, array


def _rows(message: Any, height: int, width: int) -> np.ndarray:
    """Return rows of `width` bytes, without what fills them up."""
    data = message.data if isinstance(message.data, np.ndarray) else np.frombuffer(message.data, np.uint8)
    # Some drivers leave the step zero where rows have no padding.
    step = int(message.step) or width
    # Checked before anything is cut out of it: the sender may be anybody.
    if step < width or not width or data.size < height * step:
        raise InputError(
            f"an image of {message.width}x{message.height} as {message.encoding!r} with rows of {message.step} bytes "
            f"has {data.size} bytes"
        )
    return data[: height * step].reshape(height, step)[:, :width]


class Decompressor:
    """Decodes JPEG or PNG `CompressedImage` messages, without the interpreter's lock."""

    def __init__(self) -> None:
        self._jpeg: Any = None

    def picture(self, message: Any) -> Any:
        """Return the message's picture as PyAV's frame; `InputError` if it is another format, or damaged."""
        # PyAV takes bytes; compressed ones are few, so that the copy costs little.
        data, av = bytes(message.data), library()
        # By the content: the field `format` is free text, in which drivers write what they like.
        name = CODECS.get(data[:2])
        if name is None:
            raise InputError(f"a compressed image of format {message.format!r} is neither JPEG nor PNG")
        try:
            pictures = self._codec(name).decode(av.Packet(data))
        except (av.FFmpegError, ValueError) as error:
            raise InputError(f"a compressed image is damaged: {error}") from None
        if not pictures:
            raise InputError("a compressed image is damaged: there is no picture in it")
        return pictures[0]

    def _codec(self, name: str) -> Any:
        # FFmpeg's decoder of PNG adds a picture to the one before, as animations need it.
        if name == "png" or self._jpeg is None:
            decoder = library().CodecContext.create(name, "r")
            # Else the picture comes out only with the next one.
            decoder.thread_type = "SLICE"
            if name == "png":
                return decoder
            self._jpeg = decoder
        return self._jpeg

    def read_picture(self, message: Any) -> tuple[Pixels, np.ndarray]:
        """Return the picture's format and bytes."""
        picture = self.picture(message)
        pixels = choose_pixels(picture)
        return pixels, pixels.array(picture)
