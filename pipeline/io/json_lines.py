"""Results as JSON, one line for each frame, written at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

import msgspec
import numpy as np

from pipeline.io.frame import Delivered
from pipeline.io.sink import Sink


class JsonLines(Sink):
    """Writes ``{"frame", "number", "timestamp", "latency_s", "outputs"}`` for each frame.

    Lines are there for readers as soon as they are written, and stay whatever happens.

    Parameters
    ----------
    path : Path, optional
        Without it, lines go to standard output.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._own = path is not None
        self._stream: TextIO = path.open("w", encoding="utf-8") if path else sys.stdout

    def add(self, delivered: Delivered) -> None:
        """Write one line."""
        frame = delivered.frame
        line = {
            "frame": frame.name,
            "number": delivered.number,
            "timestamp": frame.timestamp,
            "latency_s": delivered.seconds,
            "outputs": {name: np.asarray(array).tolist() for name, array in delivered.outputs.items()},
        }
        self._stream.write(msgspec.json.encode(line).decode() + "\n")
        self._stream.flush()

    def finish(self) -> None:
        """Close the file."""
        if self._own:
            self._stream.close()

    abandon = finish
