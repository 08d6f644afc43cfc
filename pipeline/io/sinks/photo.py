"""Photo sink: the picture of each frame with its result, as JPEG, PNG or WebP."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from pipeline.errors import InputError
from pipeline.io.sinks.annotation import OPTIONS, Annotator, check_annotator, make_annotator
from pipeline.io.sinks.base import Sink, SinkKind, SinkOptions, UniqueNames
from pipeline.io.source_frame import StreamFrame
from pipeline.io.uri import Uri, has_suffix
from pipeline.system.files import open_replacement
from pipeline.system.optional import require

FORMATS = {".jpeg": "JPEG", ".jpg": "JPEG", ".png": "PNG", ".webp": "WEBP"}
"""Names of formats by suffix."""

QUALITY = 90
"""Quality of JPEG and WebP, from 0 to 100: labels have sharp edges, around which less shows."""


def encode_jpeg(picture: np.ndarray, quality: int, largest: int | None = None) -> bytes:
    """Encode uint8 [height, width, 3], with at most `largest` pixels per side."""
    image = require("PIL.Image", "images", "writing JPEG").fromarray(picture)
    if largest is not None:
        image.thumbnail((largest, largest))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


class Photos(Sink):
    """Writes a picture for each frame.

    The path is that of the first frame's file, ``out.jpg``; the next ones are ``out-2.jpg``, ``out-3.jpg``. Or it is a
    folder, made if it is not there, for JPEG files with the names of the frames. By default results are those of the
    model's decoder. Raises `MissingExtra` if Pillow is not installed.
    """

    def __init__(self, path: Path, annotator: Annotator | None = None) -> None:
        self._image = require("PIL.Image", "images", "writing photos")
        self._path, self._annotator, self._unique_name = path, annotator or Annotator(), UniqueNames()
        self._is_folder = path.is_dir() or not path.suffix
        if self._is_folder:
            path.mkdir(exist_ok=True)
        self._empty = True

    def add(self, result: StreamFrame) -> None:
        """Write one picture."""
        suffix = ".jpg" if self._is_folder else self._path.suffix
        folder, name = (self._path, result.frame.name) if self._is_folder else (self._path.parent, self._path.stem)
        image = self._image.fromarray(self._annotator.rgb(result))
        with open_replacement(folder / f"{self._unique_name(name)}{suffix}", cleans=False) as stream:
            # Colours of each pixel, since lines are narrow; other formats ignore it.
            image.save(stream, FORMATS[suffix.lower()], quality=QUALITY, subsampling=0)
        self._empty = False

    def finish(self) -> None:
        """Raise `InputError` without a picture."""
        if self._empty:
            raise InputError(f"no picture for {str(self._path)!r}: no frame was delivered")

    def finish_early(self) -> None:
        """Leave the pictures as they are."""


def _check(uri: Uri) -> None:
    check_annotator(uri)
    suffix = uri.path.suffix.lower()
    if suffix not in FORMATS and (uri.path.is_file() or (suffix and not uri.path.is_dir())):
        raise InputError(f"cannot write {uri.text!r}; photos are {' '.join(FORMATS)} files, or photo:FOLDER")


def _open(uri: Uri, sink_options: SinkOptions) -> Photos:
    return Photos(uri.path, make_annotator(uri.options, sink_options))


EXAMPLE = f"a photo ({' '.join(FORMATS)}), photo:FOLDER for one per frame"
KINDS = (SinkKind("photo", _open, EXAMPLE, has_suffix(*FORMATS), options=OPTIONS, check=_check),)
