"""Results as lines of JSON, or for people, one per frame, written at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import msgspec
import numpy as np

from pipeline.errors import InputError
from pipeline.io.sinks.base import Sink, SinkKind, SinkOptions
from pipeline.io.source_frame import StreamFrame
from pipeline.io.uri import Uri, has_suffix

MOST_VALUES = 4096
"""Upper bound on the values of outputs beside a result: scores of classes are read, cells of a detector are not."""


class JsonLines(Sink):
    """Writes ``{"frame", "number", "timestamp", "latency_s", "result", "outputs"}`` for each frame.

    Without a path, lines go to standard output. They are there for readers as soon as they are written, and stay
    whatever happens. Outputs of integers that stand for other numbers, as quantised models have them, are written as
    those. A model with a decoder has a result, in the pixels of the picture; what it was read from is left out where
    that is large, unless all outputs are wanted.
    """

    def __init__(self, path: Path | None = None, *, all_outputs: bool = False) -> None:
        self._all_outputs = all_outputs
        # Standard output belongs to the process.
        self._closes = path is not None
        self._stream: TextIO = path.open("w", encoding="utf-8") if path else sys.stdout

    def add(self, result: StreamFrame) -> None:
        """Write one line."""
        frame = result.frame
        line: dict[str, Any] = {
            **({"stream": result.stream} if result.stream else {}),
            "frame": frame.name,
            "number": result.sequence,
            "timestamp": frame.timestamp,
            "latency_s": result.seconds,
        }
        if result.result is not None:
            line["result"] = result.result.facts()
        if result.outputs and (result.result is None or self._all_outputs or _is_small(result)):
            numbers = {name: np.asarray(array) for name, array in result.numbers.items()}
            line["outputs"] = {name: msgspec.Raw(b"".join(_encode(array))) for name, array in numbers.items()}
        # JSON has no NaN and no infinities; msgspec writes null for them.
        self._stream.write(msgspec.json.encode(line).decode() + "\n")
        # Whoever follows the file, or reads the pipe, has each line at once.
        self._stream.flush()

    def finish(self) -> None:
        """Close the file."""
        if self._closes:
            self._stream.close()


def _encode(array: np.ndarray) -> Iterator[bytes]:
    """Yield an array's JSON in pieces of bounded time: all other threads wait for each."""
    if array.size <= MOST_VALUES:
        yield msgspec.json.encode(array.tolist())
        return
    # Rows as they are, or as many numbers of a row as a piece may have, without their brackets.
    step = MOST_VALUES if array.ndim == 1 else 1
    for start in range(0, len(array), step):
        yield b"," if start else b"["
        if array.ndim == 1:
            yield msgspec.json.encode(array[start : start + step].tolist())[1:-1]
        else:
            yield from _encode(array[start])
    yield b"]"


def _is_small(result: StreamFrame) -> bool:
    return sum(np.size(array) for array in result.outputs.values()) <= MOST_VALUES


def _check(uri: Uri) -> None:
    if (outputs := uri.options.get("outputs", "all")) != "all":
        raise InputError(f"outputs is {outputs!r}; it must be 'all', or left out")


def _open(uri: Uri, _: SinkOptions) -> JsonLines:
    return JsonLines(None if uri.location == "-" else uri.path, all_outputs="outputs" in uri.options)


EXAMPLE = "a .jsonl file"
KINDS = (SinkKind("jsonl", _open, EXAMPLE, has_suffix(".jsonl", ".ndjson"), options=("outputs",), check=_check),)


class SummaryLines(Sink):
    """Prints name and result of each frame, where `soc-pipeline run` has no sink."""

    def add(self, result: StreamFrame) -> None:
        """Print one line."""
        if result.result is not None:
            # Flushed, since a pipe may have a reader who follows a camera.
            print(f"{result.frame.name}: {result.result.summary() or 'nothing'}", flush=True)
