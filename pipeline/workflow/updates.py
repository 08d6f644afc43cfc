"""Updates: new versions from a folder during streaming, undone if worse."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import PipelineClosed, PipelineError, describe_error
from pipeline.executor.manifest import MANIFEST
from pipeline.workflow.update_checks import UpdateOptions, guard
from pipeline.workflow.update_shadow import compare_live

if TYPE_CHECKING:
    from typing_extensions import Self

    from pipeline.executor.bundle import Bundle
    from pipeline.scheduler.pipeline import Pipeline

logger = logging.getLogger(__name__)

INTERVAL_S = 0.5
"""Seconds between two looks at the folder; a version that changes from one to the next is still being copied."""


@dataclass(frozen=True)
class UpdateCounts:
    """Outcomes of new versions."""

    applied: int = 0
    refused: int = 0
    rolled_back: int = 0
    """Versions that are, or were, at work; that never were; and that were for some frames."""


_END_S = 2.0
"""Seconds of waiting for the end of a look at a version; it may be in a file or a device that hangs."""

State = tuple[tuple[str, int, int], ...]
"""Names, sizes and times of a bundle's files."""


class Updater:
    """Watches a folder for a running bundle's new versions; a context manager.

    Versions are the folder's folders with a manifest, the newest ones last; those that lie there when it begins are
    none of the new ones. Whatever is wrong with a version is logged and counted, and ends nothing. The pipeline stays
    the caller's. `load` returns the bundle at a path, or raises `PipelineError`; `record` is called with the path of a
    version that has come to stay.
    """

    def __init__(  # noqa: PLR0913 - the last three are optional
        self,
        running: Pipeline,
        bundle: Bundle,
        folder: Path,
        load: Callable[[Path], Bundle],
        options: UpdateOptions = UpdateOptions(),  # noqa: B008 - immutable
        *,
        record: Callable[[Path], object] = lambda _: None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._running, self._bundle, self._folder = running, bundle, folder
        self._load, self._options, self._record, self._interval_s = load, options, record, interval_s
        self._counts = UpdateCounts()
        self._seen = _look(folder)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="updates", daemon=True)

    @property
    def counts(self) -> UpdateCounts:
        """Outcomes of new versions so far."""
        return self._counts

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(_END_S)

    def _watch(self) -> None:
        previous = self._seen
        while not self._ending.wait(self._interval_s) and not self._running.closed:
            states = _look(self._folder)
            changed = {path: state for path, state in states.items() if self._seen.get(path) != state}
            complete = [path for path, state in changed.items() if previous.get(path) == state]
            for path in sorted(complete, key=lambda path: max(time_ns for *_, time_ns in states[path])):
                self._seen = {**self._seen, path: states[path]}
                self._apply(path)
            previous = states

    def _apply(self, path: Path) -> None:
        """Switch to a version, unless a check objects."""
        running, ends = self._running, self._ending.is_set
        latencies = running.latencies()
        try:
            bundle = self._load(path)
            compare_live(running, self._bundle, bundle, self._options, ends)
            running.swap(bundle, timeout=self._options.opening_s)
            reason = guard(running, latencies, self._options, ends)
            if reason:
                running.swap(self._bundle, grace=self._options.grace_s)
        except PipelineClosed:
            return
        except (PipelineError, OSError) as error:
            self._counts = replace(self._counts, refused=self._counts.refused + 1)
            logger.warning("version %r is refused: %s", path.name, describe_error(error, kind=False))
            return
        if reason:
            self._counts = replace(self._counts, rolled_back=self._counts.rolled_back + 1)
            logger.warning("version %r is taken back: %s", path.name, reason)
        else:
            self._bundle = bundle
            self._counts = replace(self._counts, applied=self._counts.applied + 1)
            logger.warning("version %r is at work", path.name)
            self._record(path)


def _look(folder: Path) -> dict[Path, State]:
    """Return a folder's versions with their identifying states."""
    states: dict[Path, State] = {}
    try:
        folders = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except OSError:  # it is gone, for the moment or for good
        return {}
    for path in folders:
        try:
            with os.scandir(path) as entries:
                files = [(entry.name, *_size_and_time(entry)) for entry in entries]
        except OSError:  # it is being replaced
            continue
        if any(name == MANIFEST for name, *_ in files):
            states[path] = tuple(sorted(files))
    return states


def _size_and_time(entry: os.DirEntry[str]) -> tuple[int, int]:
    status = entry.stat()
    return status.st_size, status.st_mtime_ns
