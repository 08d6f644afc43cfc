"""Watched folder: images and arrays arriving from elsewhere, such as camera uploads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.core.model_card import Preparation
from pipeline.core.plan.plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import InputError, SourceLost
from pipeline.io.source_frame import SourceFrame
from pipeline.io.sources.base import FrameSource, SourceKind, SourceOptions
from pipeline.io.sources.files import ARRAYS, IMAGES, Files
from pipeline.io.sources.video import DAMAGED
from pipeline.io.uri import Uri

if TYPE_CHECKING:
    from pipeline.executor.stage_code import StageCode

INTERVAL_S = 0.1
"""Seconds between two looks: a fraction of what writing a picture over a network takes, and nothing for a processor."""

State = tuple[int, int]
"""Time of the last change in nanoseconds, and size."""


class WatchedFolder(FrameSource):
    """Frames in files changed since the opening, oldest first.

    A file is read when it has not changed between two looks, so that none is read while it is written; `pause` waits
    between them. Images may differ in size. Files that cannot be read end in an error, with `damaged` as ``"refuse"``,
    or are left out, with ``"skip"``. Raises `InputError` if there is no such folder.
    """

    live = True

    def __init__(  # noqa: PLR0913 - all but the first three by keyword
        self,
        folder: Path,
        specs: Sequence[TensorSpec],
        preparation: Preparation | None = None,
        *,
        quantizations: Sequence[Quantization] = (),
        pictures: StageCode | None = None,
        damaged: str = "refuse",
        pause: Callable[[], object] = lambda: time.sleep(INTERVAL_S),
    ) -> None:
        if damaged not in DAMAGED:
            raise InputError(f"damaged is {damaged!r}; it must be {' or '.join(map(repr, DAMAGED))}")
        if not folder.is_dir():
            raise InputError(f"no folder to watch at {str(folder)!r}")
        self._folder, self._specs, self._preparation = folder, specs, preparation
        self._quantizations, self._pictures = quantizations, pictures
        self._skip, self._pause = damaged == "skip", pause
        # What lies there already is none of the new frames.
        self._past_states = self._previous = self._look()

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the frames, without end."""
        while True:
            for path in self._complete_files():
                yield from self._read(path)
            self._pause()

    def _look(self) -> Mapping[Path, State]:
        states: dict[Path, State] = {}
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if Path(entry.name).suffix.lower() in ARRAYS + IMAGES:
                        states[Path(entry.path)] = _state(entry)
        except OSError as error:
            raise SourceLost(f"folder {str(self._folder)!r} cannot be watched any more: {error.strerror}") from None
        return states

    def _complete_files(self) -> list[Path]:
        states = self._look()
        # Unchanged since the last look, and not read yet in this state.
        complete = [
            path
            for path, state in states.items()
            if state == self._previous.get(path) and state != self._past_states.get(path)
        ]
        self._previous = states
        # Of files that are gone nothing is kept: the folder may be emptied for years.
        past_states = {path: state for path, state in self._past_states.items() if path in states}
        self._past_states = {**past_states, **{path: states[path] for path in complete}}
        # By the time of the change, since several may come between two looks; of one time, by name.
        return sorted(complete, key=lambda path: (states[path], path))

    def _read(self, path: Path) -> Iterator[SourceFrame]:
        try:
            yield from Files([path], self._specs, self._preparation, self._quantizations, self._pictures)
        except InputError:
            # Whoever empties the folder may have been quicker.
            if not self._skip and path.exists():
                raise


def _state(entry: os.DirEntry[str]) -> State:
    try:
        status = entry.stat()
    except FileNotFoundError:  # gone since the folder was read
        # A state that no file has: it is not complete before it is seen unchanged.
        return 0, 0
    return status.st_mtime_ns, status.st_size


def _open(uri: Uri, options: SourceOptions) -> WatchedFolder:
    policy = uri.options.get("damaged", "refuse")
    scales, pictures = options.quantizations, options.pictures
    return WatchedFolder(
        uri.path, options.specs, options.preparation, quantizations=scales, pictures=pictures, damaged=policy
    )


KINDS = (SourceKind(("watch",), _open, "watch:FOLDER", live=True, options=("damaged",)),)
