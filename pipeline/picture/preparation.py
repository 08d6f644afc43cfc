"""Preparation: from picture to model input: resized, normalised, laid out.

Preparation is a stage in front of the model's own, so that it works on the next picture while they work on this one.
FFmpeg converts and resizes in one pass, without the interpreter's lock, as NumPy does the rest.  Other rules of
resizing, for models that were trained with them, take one more pass for the conversion.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import InputError
from pipeline.picture.geometry import Geometry, fit
from pipeline.picture.pixels import Pixels, library
from pipeline.picture.resampling import resize_picture

# Number of channels -> FFmpeg's format with each of them in a plane of its own.
PLANES = {1: "gray", 3: "gbrp"}

_BYTES = ("int8", "uint8")
_POSITIONS = {"": "first or last", "nchw": "first", "nhwc": "last"}


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


def layout(spec: TensorSpec, order: str = "") -> PictureLayout:
    """Return the layout of a model's input, or raise `InputError`.

    Parameters
    ----------
    spec : TensorSpec
    order : str
        ``"nchw"`` or ``"nhwc"``; empty to go by the shape.
    """
    # A batch of one picture; several pictures per frame would need a source of several.
    shape = spec.shape[1:] if len(spec.shape) == 4 and spec.shape[0] == 1 else spec.shape
    if len(shape) == 3 and spec.dtype in (*_BYTES, "float16", "float32"):
        # Where both ends could be channels, the first one is: a picture is hardly 1 or 3 pixels wide.
        if shape[0] in PLANES and order != "nhwc":
            return PictureLayout(*shape, last=False)
        if shape[2] in PLANES and order != "nchw":
            return PictureLayout(shape[2], *shape[:2], last=True)
    raise InputError(
        f"images do not fit the model's input {spec}; it takes one picture with 1 or 3 channels, "
        f"{_POSITIONS[order]}, as float32, float16, uint8 or int8; give .npy files"
    )


class PictureInput:
    """A model's input, filled with pictures by the rules of a preparation.

    Parameters
    ----------
    spec : TensorSpec
        The input.
    preparation : Preparation
    quantizations : sequence of Quantization
        Scales of quantised tensors by name, among them the input's if it has one.

    Attributes
    ----------
    layout : PictureLayout

    Raises
    ------
    InputError
        If it takes no pictures, or bytes that shall be normalised without a scale.
    """

    def __init__(self, spec: TensorSpec, preparation: Preparation, quantizations: Iterable[Quantization] = ()) -> None:
        self.layout = layout(spec, preparation.layout)
        self._spec, self._preparation = spec, preparation
        quantization = next((scales for scales in quantizations if scales.tensor == spec.name), None)
        self._tables = self._byte_tables(quantization) if spec.dtype in _BYTES else None

    def fit(self, width: int, height: int) -> Geometry:
        """Return the position of pictures of a size."""
        rules, room = self._preparation, (self.layout.width, self.layout.height)
        return fit(
            rules.resize,
            (width, height),
            room,
            margin=rules.margin,
            rounding=rules.rounding,
            fraction=rules.fraction,
        )

    def prepare(self, picture: np.ndarray) -> tuple[np.ndarray, Geometry]:
        """Return the input for a picture, uint8 [height, width, 3], and its position."""
        geometry = self.fit(picture.shape[1], picture.shape[0])
        size = geometry.width, geometry.height
        planes = resize_picture(picture, size, self.layout.channels, self._preparation.sampling)
        return self.fill(planes, geometry), geometry

    def fill(self, planes: Sequence[np.ndarray] | np.ndarray, geometry: Geometry) -> np.ndarray:
        """Return the input for a picture that has been resized.

        Parameters
        ----------
        planes : sequence of array
            Grey, or red, green and blue: uint8 of `geometry`'s height and width.
        geometry : Geometry
        """
        spec, rules, arrangement = self._spec, self._preparation, self.layout
        dtype = "uint8" if spec.dtype in _BYTES else spec.dtype
        # Filled only where part of it stays free, since filling takes as long as a copy.
        array = np.full(spec.shape, rules.fill, dtype) if geometry.margins else np.empty(spec.shape, dtype)
        views = arrangement.planes(array)
        columns, rows = (
            _overlap(geometry.left, geometry.width, arrangement.width),
            _overlap(geometry.top, geometry.height, arrangement.height),
        )
        for view, plane in zip(views, planes if rules.channels == "rgb" else planes[::-1], strict=True):
            view[rows[0], columns[0]] = plane[rows[1], columns[1]]
        if dtype != "uint8":
            _normalise(rules, views)
        elif self._tables is not None:
            for view, table in zip(views, self._tables, strict=True):
                view[...] = table[view]
        # -128 for black and 127 for white: a byte less 128, which flips its highest bit.
        return (array ^ np.uint8(128)).view(np.int8) if spec.dtype == "int8" else array

    def _byte_tables(self, quantization: Quantization | None) -> Sequence[np.ndarray] | None:
        """Return each channel's bytes for a picture's, of int8 plus 128; None for the same bytes."""
        rules, spec = self._preparation, self._spec
        # Pictures have one scale: none is known with others for rows, columns or channels.
        if quantization is None or len(quantization.scale) != 1 or not rules.normalises:
            if any(rules.mean) or any(deviation != 1 for deviation in rules.std):
                raise InputError(
                    f"the model's input {spec} takes bytes without a scale, which have no mean and std to be "
                    "normalised by"
                )
            return None
        (scale,), (zero_point,) = quantization.scale, quantization.zero_point
        lowest = -128 if spec.dtype == "int8" else 0
        values = np.arange(256) * (rules.white / 255)
        tables = [
            (((values - mean) / std / scale + zero_point).round() - lowest).clip(0, 255).astype(np.uint8)
            for mean, std in zip(*_normalisation(rules, self.layout.channels), strict=True)
        ]
        # Most quantised models take a byte's own value.  TFLite's libraries hand it to all inputs of uint8, also where
        # -1 to 1 has steps of 1 / 128, and the exact one would be half a step away.
        tolerance = 1 if spec.dtype == "uint8" else 0
        same = all((np.abs(table - np.arange(256)) <= tolerance).all() for table in tables)
        return None if same else tables


def _normalise(preparation: Preparation, views: np.ndarray) -> None:
    for view, mean, std in zip(views, *_normalisation(preparation, len(views)), strict=True):
        # (value * white / 255 - mean) / std, as one division and one subtraction in place, and in the input's type.
        divisor = 255 / preparation.white * std
        if divisor != 1:
            np.divide(view, view.dtype.type(divisor), out=view)
        # Most often there is none, and the pass over the picture is saved.
        if mean:
            np.subtract(view, view.dtype.type(mean / std), out=view)


def _normalisation(preparation: Preparation, channels: int) -> tuple[Sequence[float], Sequence[float]]:
    """Return mean and deviation of each channel."""
    mean, std = (
        [values[number % len(values)] for number in range(channels)] for values in (preparation.mean, preparation.std)
    )
    return mean, std


def _overlap(begin: int, extent: int, room: int) -> tuple[slice, slice]:
    """Return the filled part of the room, and the picture's part."""
    extent_inside = min(extent, room - begin) if begin >= 0 else min(extent + begin, room)
    return slice(max(begin, 0), max(begin, 0) + extent_inside), slice(max(-begin, 0), max(-begin, 0) + extent_inside)


class PreparationStage:
    """Stage function from a picture's bytes to the model's input.

    Parameters
    ----------
    pixels : Pixels
        Format of the pictures.
    spec, preparation, quantizations
        See `PictureInput`.
    """

    def __init__(
        self,
        pixels: Pixels,
        spec: TensorSpec,
        preparation: Preparation,
        quantizations: Iterable[Quantization] = (),
    ) -> None:
        self._input = PictureInput(spec, preparation, quantizations)
        self._pixels, self._exact = pixels, preparation.sampling != "average"
        self.geometry = self._input.fit(pixels.width, pixels.height)
        self._planes = PLANES[self._input.layout.channels]
        # Of FFmpeg's scalers, each serves one thread at a time; replicas of the stage have several.
        self._local = threading.local()
        if not self._exact:
            library()

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """Return the model's input."""
        if self._exact:
            return self._input.prepare(self._pixels.rgb(array))[0]
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
        return self._input.fill(colours, self.geometry)

    def _scaler(self) -> Any:
        if not hasattr(self._local, "scaler"):
            self._local.scaler = library().video.reformatter.VideoReformatter()
        return self._local.scaler


def _bytes(plane: Any) -> np.ndarray:
    # FFmpeg pads rows to a multiple of its vectors.
    return np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)[:, : plane.width]
