"""Annotation: the picture of a frame with its result, for sinks of pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pipeline.core.card_file import read_labels
from pipeline.core.model_card import ModelCard
from pipeline.errors import InputError
from pipeline.io.decoders.base import ModelInterface
from pipeline.io.decoders.registry import make_decoder
from pipeline.io.results import Classes, Detections, FrameResults, Mask, Result
from pipeline.io.sinks.base import SinkOptions
from pipeline.io.sinks.overlay import draw
from pipeline.io.source_frame import StreamFrame
from pipeline.io.uri import Uri
from pipeline.picture.pixels import Pixels

OPTIONS = ("labels", "least", "show")
"""Options of a sink about what is drawn."""

_DECODERS: dict[str, dict[str, Any]] = {
    "label": {"decoder": "classes", "parameters": {"top": 1}},
    # All of them, since `least` selects.
    "boxes": {"decoder": "rows", "parameters": {"score": 0}},
}
"""Decoders of ``show``, for models without one of their own."""


class Annotator:
    """Draws results on the pictures of their frames.

    For a model without a decoder of its own, `show` is one for `sink_options`' outputs: ``"label"`` or ``"boxes"``.
    `labels` take the place of the model's; boxes of scores below `least` are left out. Raises `InputError` if the
    outputs do not fit `show`.
    """

    def __init__(
        self,
        show: str | None = None,
        labels: list[str] | None = None,
        least: float | None = None,
        sink_options: SinkOptions | None = None,
    ) -> None:
        self._show, self._labels, self._least = show, labels, least
        self._sink_options = sink_options or SinkOptions(())
        self._decode: Callable[[Mapping[str, np.ndarray]], Result] | None = None
        # What a model with a decoder gives is known better.
        if show is not None and not self._sink_options.decoded:
            card = ModelCard(labels=labels or (), **_DECODERS[show])
            geometry = self._sink_options.geometry
            size = geometry.room if geometry else (0, 0)
            # The first output, as long as nobody names another one.
            interface = ModelInterface(size, self._sink_options.outputs[:1], card.labels)
            try:
                self._decode = make_decoder(card, interface)
            except InputError as error:
                raise InputError(f"{error}; leave out show={show}, or name the model's decoder by --decode") from None

    def result(self, result: StreamFrame) -> Result | FrameResults | None:
        """Return the result as it is drawn; None without a decoder."""
        decoded = result.result
        if decoded is None and self._decode is not None:
            decoded = self._decode(result.numbers)
            geometry, size = result.frame.placement(self._sink_options.geometry)
            if geometry is not None and size is not None:
                decoded = decoded.to_picture(geometry, size)
        if self._labels and isinstance(decoded, Detections | Classes | Mask):
            decoded = replace(decoded, labels=self._labels)
        if self._show == "label" and isinstance(decoded, Classes):
            decoded = replace(decoded, classes=decoded.classes[:1], scores=decoded.scores[:1])
        if self._least is not None and isinstance(decoded, Detections):
            decoded = decoded[decoded.scores >= self._least]
        return decoded

    def picture(self, result: StreamFrame) -> tuple[Pixels, np.ndarray]:
        """Return the picture and its format.

        This is the source's picture, in its own format, with the result drawn on it.  Without a result it is the
        picture that the model made, else the source's as it is. Raises `InputError` if neither the source nor the model
        gives a picture; `MissingExtra` if something is drawn, and Pillow is not installed.
        """
        decoded = self.result(result)
        if decoded is None:
            # A frame of an application has no outputs where nothing was found.
            output = as_picture(next(iter(result.outputs.values()), None))
            if output is not None:
                return Pixels("gray" if output.ndim == 2 else "rgb24", output.shape[1], output.shape[0]), output
        pixels, array = result.frame.read_picture()
        if decoded is None:
            return pixels, array
        return pixels, draw(array, decoded, pixels)

    def rgb(self, result: StreamFrame) -> np.ndarray:
        """Return the same picture as uint8 [height, width, 3]."""
        pixels, array = self.picture(result)
        return np.repeat(array[..., None], 3, axis=2) if pixels.format == "gray" else pixels.rgb(array)


def as_picture(array: Any) -> np.ndarray | None:
    """Return an output as uint8 [height, width] or [height, width, 3], else None.

    Pictures have channels first or last, of bytes, or of floats from 0 to 1.
    """
    picture: Any = np.asarray(array)
    picture = picture[0] if picture.ndim == 4 and len(picture) == 1 else picture
    # Channels first, unless they could be last as well.
    if picture.ndim == 3 and picture.shape[0] in (1, 3) and picture.shape[2] not in (1, 3):
        picture = picture.transpose(1, 2, 0)
    # Below 8 pixels it is rather a feature map than a picture.
    if picture.ndim != 3 or picture.shape[2] not in (1, 3) or min(picture.shape[:2]) < 8:
        return None
    if picture.dtype.kind == "f":
        # Floats count from 0 to 1, as networks that make pictures give them.
        picture = (picture.clip(0, 1) * 255).round().astype(np.uint8)
    return (
        np.ascontiguousarray(picture[..., 0] if picture.shape[2] == 1 else picture)
        if picture.dtype == np.uint8
        else None
    )


def make_annotator(options: Mapping[str, str], sink_options: SinkOptions) -> Annotator:
    """Return the annotator of a sink's options, or raise `InputError`."""
    show = options.get("show")
    if show not in (None, *_DECODERS):
        raise InputError(f"show is {show!r}; it must be 'label' or 'boxes'")
    if show is None and options.keys() & {"labels", "least"} and not sink_options.decoded:
        raise InputError("labels and least belong to show=label or show=boxes, or to a model with a decoder")
    least = _parse_score(options["least"]) if "least" in options else None
    # A row below is hardly a thing; decoders have a score of their own.
    least = 0.5 if least is None and show == "boxes" and not sink_options.decoded else least
    labels = list(read_labels(options["labels"])) if "labels" in options else None
    return Annotator(show, labels, least, sink_options)


def check_annotator(uri: Uri) -> None:
    """Raise `InputError` for options that no model makes right."""
    make_annotator(uri.options, SinkOptions((), decoded=True))


def _parse_score(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"least is {text!r}; it must be a score") from None
