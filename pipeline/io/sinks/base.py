"""Sink: interface of all destinations of results, and their registry entries."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.core.plan.plan import TensorSpec
from pipeline.io.source_frame import StreamFrame
from pipeline.io.uri import Uri
from pipeline.picture.geometry import Geometry
from pipeline.system.closable import call_all

if TYPE_CHECKING:
    from typing_extensions import Self


class Sink:
    """Receives results in order and drops them; a context manager.

    The recording is completed when the ``with`` block ends, also by an exception: a camera that is lost takes nothing
    along.  A sink of one's own has `add`, `finish` if there is something to do in the end, and `finish_early` if that
    is another thing after an exception.
    """

    reads_results = True
    """False if it leaves `StreamFrame.result` alone, which then need not be decoded."""

    def add(self, result: StreamFrame) -> None:
        """Take one result."""

    def finish(self) -> None:
        """Complete the recording."""

    def finish_early(self) -> None:
        """Complete the recording after a failure, removing it if empty."""
        self.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an error what was recorded is completed as well, by `finish_early`, whose own error is only a warning.
        if kind is None:
            self.finish()
            return
        try:
            self.finish_early()
        except Exception as second:  # noqa: BLE001 - whatever it is, the first error says more
            warnings.warn(f"what was recorded before is incomplete: {second}", RuntimeWarning, stacklevel=2)


class Callback(Sink):
    """Calls a function with each result, in one thread, in order."""

    def __init__(self, function: Callable[[StreamFrame], object]) -> None:
        self._function = function

    def add(self, result: StreamFrame) -> None:
        """Call the function."""
        self._function(result)


class SinkGroup(Sink):
    """Hands each result to several sinks."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)
        self.reads_results = any(sink.reads_results for sink in self._sinks)

    def add(self, result: StreamFrame) -> None:
        """Hand it on."""
        for sink in self._sinks:
            sink.add(result)

    def finish(self) -> None:
        """Complete all sinks, then raise the first error."""
        call_all([sink.finish for sink in self._sinks])

    def finish_early(self) -> None:
        """Complete the non-empty sinks."""
        call_all([sink.finish_early for sink in self._sinks])


class UniqueNames:
    """Makes names of files unique: several folders may have equal ones."""

    def __init__(self) -> None:
        self._names_in_use: set[str] = set()

    def __call__(self, name: str) -> str:
        """Return the name, with a number if it is in use."""
        candidates = (f"{name}-{number}" for number in count(2))
        unique = next(candidate for candidate in chain([name], candidates) if candidate not in self._names_in_use)
        self._names_in_use.add(unique)
        return unique


@dataclass(frozen=True)
class SinkOptions:
    """Facts of the model for a sink."""

    outputs: Sequence[TensorSpec]
    """The model's."""
    geometry: Geometry | None = None
    """Position of the pictures in the model's input."""
    decoded: bool = False
    """True if the stream decodes the outputs."""
    notice: Callable[[str], object] = lambda _: None
    """Function to call with addresses."""
    allow_commands: bool = False
    """True if the text is the user's own; see `SourceOptions`."""


@dataclass(frozen=True)
class SinkKind:
    """Registry entry: recognition and opening of a kind of sink."""

    name: str
    """Kind in front of the colon."""
    open: Callable[[Uri, SinkOptions], Sink]
    """Opens the sink at a `Uri`."""
    example: str
    """Example for messages that say what is supported."""
    recognise: Callable[[Path], bool] = lambda _: False
    """Test for a path of such a sink without a kind in front of it."""
    is_file: bool = True
    """True if the location is a path, whose folder has to be there."""
    is_command: bool = False
    """True if the text is run, and so needs `SinkOptions.allow_commands`."""
    options: Sequence[str] | None = ()
    """Names of the options that a text may have; None where `open` decides."""
    check: Callable[[Uri], object] = lambda _: None
    """Raises `InputError` for what can be told wrong of a `Uri` before it is opened."""
