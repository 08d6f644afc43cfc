"""Preparation: from picture to model input: resized, normalised, laid out.

Preparation is a stage in front of the model's own, so that it works on the next picture while they work on this one.
FFmpeg converts and resizes in one pass, without the interpreter's lock, as NumPy does the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.picture.geometry import Geometry, fit
from pipeline.picture.pixels import Pixels, library

# Number of channels -> FFmpeg's format with each of them in a plane of its own.
PLANES = {1: "gray", 3: "gbrp"}


@dataclass(frozen=True)
class PictureLayout:
    """Channels, rows and columns of a model's input, in order.

    Attributes
    ----------
    channels, height, width : int
    last : bool
        True if channels are the last axis.
    """

    channels: int
    height: int
    width: int
    last: bool

    def planes(self, array: np.ndarray) -> np.ndarray:
        """Return the array as [channels, height, width], in place."""
        view = array.reshape(self.height, self.width, self.channels) if self.last else array
        return view.transpose(2, 0, 1) if self.last else view.reshape(self.channels, self.height, self.width)


def layout(spec: TensorSpec) -> PictureLayout:
    """Return the layout of a model's input, or raise `InputError`."""
    # A batch of one picture; several pictures per frame would need a source of several.
    shape = spec.shape[1:] if len(spec.shape) == 4 and spec.shape[0] == 1 else spec.shape
    if len(shape) == 3 and spec.dtype in ("float16", "float32", "int8", "uint8"):
        # Where both ends could be channels, the first one is: a picture is hardly 1 or 3 pixels wide.
        if shape[0] in PLANES:
            return PictureLayout(*shape, last=False)
        if shape[2] in PLANES:
            return PictureLayout(shape[2], *shape[:2], last=True)
    raise InputError(
        f"images do not fit the model's input {spec}; it takes one picture with 1 or 3 channels, first or last, as "
        "float32, float16, uint8 or int8; give .npy files"
    )


def prepared_layout(preparation: Preparation, spec: TensorSpec) -> PictureLayout:
    """Return the layout of a model's input.

    Raises
    ------
    InputError
        If it takes no pictures, or bytes that shall be normalised.
    """
    if spec.dtype in ("int8", "uint8") and (
        any(preparation.mean) or any(deviation != 1 for deviation in preparation.std)
    ):
        raise InputError(f"the model's input {spec} takes bytes, which have no mean and std to be normalised by")
    return layout(spec)


def fill_input(
    preparation: Preparation, planes: Sequence[np.ndarray], spec: TensorSpec, geometry: Geometry
) -> np.ndarray:
    """Return the input for `spec`.

    Parameters
    ----------
    planes : sequence of array
        Grey, or red, green and blue: uint8 of `geometry`'s height and width.
    spec : TensorSpec
    geometry : Geometry
    """
    if spec.dtype == "int8":
        # Quantised models take -128 for black and 127 for white: a byte less 128, which flips its highest bit.
        pixels = fill_input(preparation, planes, replace(spec, dtype="uint8"), geometry)
        signed: np.ndarray = (pixels ^ np.uint8(128)).view(np.int8)
        return signed
    arrangement = layout(spec)
    # Filled only where part of it stays free, since filling takes as long as a copy.
    array = np.full(spec.shape, preparation.fill, spec.dtype) if geometry.margins else np.empty(spec.shape, spec.dtype)
    views = arrangement.planes(array)
    columns, rows = (
        _overlap(geometry.left, geometry.width, arrangement.width),
        _overlap(geometry.top, geometry.height, arrangement.height),
    )
    for view, plane in zip(views, planes if preparation.channels == "rgb" else planes[::-1], strict=True):
        view[rows[0], columns[0]] = plane[rows[1], columns[1]]
    if spec.dtype != "uint8":
        _normalise(preparation, views)
    return array


def _normalise(preparation: Preparation, views: np.ndarray) -> None:
    for number, view in enumerate(views):
        mean, std = (values[number % len(values)] for values in (preparation.mean, preparation.std))
        # (value / 255 - mean) / std, as one division and one subtraction in place, and in the type of the input.
        np.divide(view, view.dtype.type(255 * std), out=view)
        # Most often there is none, and the pass over the picture is saved.
        if mean:
            np.subtract(view, view.dtype.type(mean / std), out=view)


def _overlap(begin: int, extent: int, room: int) -> tuple[slice, slice]:
    """Return the filled part of the room, and the picture's part."""
    extent_inside = min(extent, room - begin) if begin >= 0 else min(extent + begin, room)
    return slice(max(begin, 0), max(begin, 0) + extent_inside), slice(max(-begin, 0), max(-begin, 0) + extent_inside)


class PreparationStage:
    """Stage function from a picture's bytes to the model's input.

    Raises
    ------
    InputError
        If the input takes no pictures, or bytes that shall be normalised.
    """

    def __init__(self, pixels: Pixels, spec: TensorSpec, preparation: Preparation) -> None:
        arrangement = prepared_layout(preparation, spec)
        self._pixels, self._spec, self._preparation = pixels, spec, preparation
        self.geometry = fit(preparation.resize, (pixels.width, pixels.height), (arrangement.width, arrangement.height))
        self._planes = PLANES[arrangement.channels]
        # Of FFmpeg's scalers, each serves one thread at a time; replicas of the stage have several.
        self._local = threading.local()
        library()

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """Return the model's input."""
        scaled_picture = self._scaler().reformat(
            self._pixels.wrap(array),
            self.geometry.width,
            self.geometry.height,
            self._planes,
            # As frameworks resize by default when they train; one thread, since the stage has one core.
            interpolation="BILINEAR",
            threads=1,
        )
        planes = [_bytes(plane) for plane in scaled_picture.planes]
        # FFmpeg's planes are green, blue and red.
        colours = planes if len(planes) == 1 else [planes[2], planes[0], planes[1]]
        return fill_input(self._preparation, colours, self._spec, self.geometry)

    def _scaler(self) -> Any:
        if not hasattr(self._local, "scaler"):
            self._local.scaler = library().video.reformatter.VideoReformatter()
        return self._local.scaler


def _bytes(plane: Any) -> np.ndarray:
    # FFmpeg pads rows to a multiple of its vectors.
    return np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)[:, : plane.width]
