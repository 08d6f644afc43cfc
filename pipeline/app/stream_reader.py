"""StreamReader: the frames of one stream into an application, within bounds."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pipeline.errors import PipelineClosed
from pipeline.scheduler.channel import Permits
from pipeline.system.memory import snapshot

if TYPE_CHECKING:
    from pipeline.app.app_frame import AppFrame
    from pipeline.app.books import Books
    from pipeline.io.source_frame import SourceFrame
    from pipeline.io.sources.base import FrameSource


class Entrance(Protocol):
    """Part of an application that frames enter by."""

    books: Books

    def enter(self, stream: str, index: int, frame: SourceFrame) -> AppFrame:
        """Let a frame in."""


class StreamReader:
    """Reads a source in a thread of its own, and brings its frames in, at most `room` at a time.

    A recording waits for a place. A live source does not: a frame that finds none is dropped, so that those inside are
    new. Without a source, the stream's frames are submitted. `error` is the source's.
    """

    def __init__(self, name: str, entrance: Entrance, source: FrameSource | None, room: int, limit: int | None) -> None:
        self._name, self._entrance, self._source, self._limit = name, entrance, source, limit
        self._room, self._permits = room, Permits(room)
        self._stopped = threading.Event()
        # Numbers are taken and frames let in under it, so that both have one order.
        self._lock = threading.Lock()
        self._index = 0
        self._thread = threading.Thread(target=self._read, args=[source], name=f"stream {name}", daemon=True)
        self.error: BaseException | None = None

    def start(self) -> None:
        """Begin to read, if there is a source."""
        if self._source is not None:
            self._thread.start()

    def wait(self) -> None:
        """Wait until the source has ended."""
        # In steps, so that an interrupt of the main thread is heard.
        while self._thread.is_alive():
            self._thread.join(0.2)

    def wait_idle(self) -> None:
        """Wait until no frame of the stream is inside."""
        if self._thread.ident is not None:
            self._thread.join()
        elif self._source is not None:
            self._source.close()
        for _ in range(self._room):
            self._permits.take()
        # Whoever still waits with a frame of his own is told.
        self._permits.close()

    def stop(self) -> None:
        """Read no more."""
        self._stopped.set()

    def leave(self) -> None:
        """Free the place of a frame that has ended."""
        self._permits.give()

    def submit(self, frame: SourceFrame, *, wait: bool = True) -> AppFrame | None:
        """Bring a frame in; None if there was no place and `wait` is False.

        Raises `PipelineClosed` if the application is closed.
        """
        with self._lock:
            if self._stopped.is_set():
                raise PipelineClosed("the application is closed")
            try:
                if not self._permits.take(None if wait else 0):
                    raise PipelineClosed("the application is closed")
            except TimeoutError:
                self._entrance.books.note(self._name, "taken")
                self._entrance.books.note(self._name, "dropped")
                return None
            index, self._index = self._index, self._index + 1
            return self._entrance.enter(self._name, index, frame)

    def _read(self, source: FrameSource) -> None:
        try:
            with source:
                for frame in islice(source, self._limit):
                    if self._stopped.is_set():
                        break
                    owned = frame if source.owns_memory else replace(frame, inputs=_copy(frame.inputs))
                    self.submit(owned, wait=not source.live)
        except PipelineClosed:
            # It was stopped while a frame waited.
            pass
        except BaseException as error:  # noqa: BLE001 - the application raises it in the end
            self.error = error


def _copy(inputs: Any) -> Any:
    """Return a frame's arrays in memory of its own: the source uses its own again."""
    if isinstance(inputs, np.ndarray):
        return snapshot(inputs)
    return {name: snapshot(array) for name, array in inputs.items()}
