"""Frame view: pictures with results, for the page of a running pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import PipelineError
from pipeline.io.sinks.overlay import draw
from pipeline.io.sinks.photo import encode_jpeg
from pipeline.io.source_frame import SourceFrame
from pipeline.system.optional import is_installed

if TYPE_CHECKING:
    from pipeline.io.result_reader import ResultReader
    from pipeline.picture.geometry import Geometry
    from pipeline.picture.pixels import Pixels

LARGEST = 960
"""Pixels per side of a picture on the page, at most: a page is hardly wider, and more take longer to send."""

QUALITY = 80
"""Quality of its JPEG, which is shown for a moment."""


class FrameView:
    """Decodes and draws single frames; None for those without a picture.

    Without a reader the picture stays as it is. `geometry` is the position of the source's pictures in the model's
    input, and `pixels` the format of frames that do not come from a source of frames.
    """

    def __init__(self, reader: ResultReader | None, geometry: Geometry | None, pixels: Pixels | None = None) -> None:
        self._reader, self._geometry, self._pixels = reader, geometry, pixels

    def __call__(
        self, metadata: Any, inputs: Sequence[np.ndarray], outputs: Mapping[str, np.ndarray]
    ) -> tuple[bytes | None, str] | None:
        """Return a JPEG, None without Pillow, and the result as a line of text."""
        frame = metadata if isinstance(metadata, SourceFrame) else SourceFrame("", inputs[0], 0, pixels=self._pixels)
        if frame.picture is None:
            # The copy: the memory of the source may have another picture by now.
            frame = replace(frame, inputs=inputs[0])
        try:
            result = None if self._reader is None else self._reader.read_frame(frame, outputs, self._geometry)
            text = "" if result is None else result.summary()
            if frame.picture is None and frame.pixels is None:
                return (None, text) if text else None
            if not is_installed("PIL"):
                return None, text
            pixels, array = frame.read_picture()
            picture = pixels.rgb(array)
            return encode_jpeg(picture if result is None else draw(picture, result), QUALITY, LARGEST), text
        except PipelineError as error:
            # What is shown must never harm what runs.
            return None, str(error)
