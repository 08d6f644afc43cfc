"""Reconnecting: goes on with a camera or stream that was lost and comes back."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator

from pipeline.errors import InputError, SourceLost
from pipeline.io.frame import Frame
from pipeline.io.source import Source

PAUSE = 0.5
"""Seconds between two attempts."""


class Reconnecting(Source):
    """Frames of a live source, which is opened anew when it is lost.

    Parameters
    ----------
    open_again : callable
        Opens the source.
    patience : float
        Seconds for which it is tried to open it again.
    notice : callable
        Told what happens.

    Raises
    ------
    InputError
        If it cannot be opened the first time.
    """

    live = True

    def __init__(
        self, open_again: Callable[[], Source], patience: float, notice: Callable[[str], None] = lambda _: None
    ) -> None:
        self._open, self._patience, self._notice = open_again, patience, notice
        self._source = open_again()
        self.pixels, self.fresh = self._source.pixels, self._source.fresh

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames; raise `SourceLost` when patience is over."""
        while True:
            lost = yield from self._until_lost()
            self._notice(f"{lost}; trying again for {self._patience:g} s")
            self._source.close()
            self._source = self._again(lost)
            self._notice("back again")

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def _until_lost(self) -> Generator[Frame, None, SourceLost]:
        try:
            yield from self._source
        except SourceLost as lost:
            return lost
        return SourceLost("the source has ended")

    def _again(self, lost: SourceLost) -> Source:
        end = time.monotonic() + self._patience
        while time.monotonic() < end:
            try:
                found = self._open()
            except (InputError, SourceLost):
                time.sleep(PAUSE)
                continue
            if found.pixels == self.pixels:
                return found
            found.close()
            raise SourceLost(f"{lost}; it came back with other pictures: {found.pixels}, and not {self.pixels}")
        raise SourceLost(f"{lost}, and did not come back within {self._patience:g} s")
