"""Reconnecting: continues a lost camera or stream after its return."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator

from pipeline.errors import InputError, SourceLost
from pipeline.io.source_frame import SourceFrame
from pipeline.io.sources.base import FrameSource

PAUSE_S = 0.5
"""Seconds between two attempts: a camera's driver needs some seconds after it is plugged in."""


class ReconnectingSource(FrameSource):
    """Frames of a live source, opened again after loss for `patience` seconds.

    Between two attempts there is a pause; `notice` is called with events. Raises `InputError` if the source cannot be
    opened the first time, or is not live.
    """

    live = True

    def __init__(
        self,
        open_again: Callable[[], FrameSource],
        patience: float,
        notice: Callable[[str], None] = lambda _: None,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._open, self._patience, self._notice, self._pause_s = open_again, patience, notice, pause_s
        # The first failure is a mistake in the command, and not a camera that comes back.
        self._source = open_again()
        if not self._source.live:
            self._source.close()
            raise InputError("the source is not live, so that it cannot be lost; leave out reconnect")
        self.pixels, self.owns_memory = self._source.pixels, self._source.owns_memory

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the frames; raise `SourceLost` when patience is over."""
        while True:
            loss = yield from self._until_lost()
            self._notice(f"{loss}; trying again for {self._patience:g} s")
            # Before it is opened again: a device of Video4Linux serves one at a time.
            self._source.close()
            self._source = self._again(loss)
            self._notice("back again")

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def _until_lost(self) -> Generator[SourceFrame, None, SourceLost]:
        try:
            yield from self._source
        except SourceLost as loss:
            return loss
        return SourceLost("the source has ended")

    def _again(self, loss: SourceLost) -> FrameSource:
        # By a clock that nobody sets: machines without a battery get their time from the network.
        end = time.monotonic() + self._patience
        while time.monotonic() < end:
            try:
                source = self._open()
            except (InputError, SourceLost):
                time.sleep(self._pause_s)
                continue
            # The first stage was made for the pictures of before; another camera may be at the same address.
            if source.pixels == self.pixels:
                return source
            source.close()
            raise SourceLost(f"{loss}; it came back with other pictures: {source.pixels}, and not {self.pixels}")
        raise SourceLost(f"{loss}, and did not come back within {self._patience:g} s")
