"""Results as JSON lines, one per frame, written at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

import msgspec
import numpy as np

from pipeline.io.sinks.base import Sink, SinkKind, SinkOptions
from pipeline.io.source_frame import FrameResult
from pipeline.io.uri import Uri, has_suffix


class JsonLines(Sink):
    """Writes ``{"frame", "number", "timestamp", "latency_s", "outputs"}`` for each frame.

    Lines are there for readers as soon as they are written, and stay whatever happens.  Outputs of integers that stand
    for other numbers, as quantised models have them, are written as those.

    Parameters
    ----------
    path : Path, optional
        File to write; without it, lines go to standard output.
    """

    def __init__(self, path: Path | None = None) -> None:
        # Standard output belongs to the process.
        self._closes = path is not None
        self._stream: TextIO = path.open("w", encoding="utf-8") if path else sys.stdout

    def add(self, result: FrameResult) -> None:
        """Write one line."""
        frame = result.frame
        line = {
            "frame": frame.name,
            "number": result.number,
            "timestamp": frame.timestamp,
            "latency_s": result.seconds,
            "outputs": {name: np.asarray(array).tolist() for name, array in result.numbers.items()},
        }
        # JSON has no NaN and no infinities; msgspec writes null for them.
        self._stream.write(msgspec.json.encode(line).decode() + "\n")
        # Whoever follows the file, or reads the pipe, has each line at once.
        self._stream.flush()

    def finish(self) -> None:
        """Close the file."""
        if self._closes:
            self._stream.close()


def _open(uri: Uri, _: SinkOptions) -> JsonLines:
    uri.check_options()
    return JsonLines(None if uri.location == "-" else uri.path)


KINDS = (SinkKind("jsonl", _open, "a .jsonl file", has_suffix(".jsonl", ".ndjson")),)
