"""Limits of time on what may hang, for tests that feed readers with damaged files."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Hang(BaseException):
    """Raised into what takes too long; no reader takes it for a fault of a file."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt the block by `Hang` after some seconds; in the main thread only."""

    def interrupt(_: int, frame: FrameType | None) -> None:
        raise Hang(f"still running after {seconds} s")

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
