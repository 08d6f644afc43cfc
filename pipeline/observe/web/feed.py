"""Feed: periodic updates for all current readers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

PERIOD_S = 0.4
"""While an update is made, the interpreter is taken from the workers."""

_GOODBYE_S = 1.0
"""Longest wait for readers to take the last update. A browser that hangs must not hold up the end."""

logger = logging.getLogger(__name__)


class Feed:
    """Newest update as a server-sent event, for the server's thread only.

    A reader that is slow misses updates instead of piling them up.

    `read` returns an update as plain values; called only while there are readers.
    `readers`: number of readers.
    """

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read, self.readers, self._is_over = read, 0, False
        self._has_readers = asyncio.Event()
        # One future for all readers, so that an update is made and encoded once.
        self._next: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Publish updates until cancelled."""
        while True:
            # Without readers nothing is asked of the pipeline.
            await self._has_readers.wait()
            self._publish()
            await asyncio.sleep(PERIOD_S)

    async def end(self) -> None:
        """Send readers the last update, and wait briefly for their departure."""
        self._publish()
        self._is_over = True
        # In short steps, so that the end comes as soon as the last one has left.
        for _ in range(100):
            if not self.readers:
                break
            self._settle(None)
            await asyncio.sleep(_GOODBYE_S / 100)

    async def next(self) -> bytes | None:
        """Return the next message, None at the end."""
        # Shielded: a reader that leaves must not cancel what the others wait for.
        return None if self._is_over else await asyncio.shield(self._next)

    def join(self) -> None:
        """Count one reader more."""
        self.readers += 1
        self._has_readers.set()

    def leave(self) -> None:
        """Count one reader less."""
        self.readers -= 1
        if not self.readers:
            self._has_readers.clear()

    def _publish(self) -> None:
        if not self.readers:
            return
        try:
            self._settle(b"data: " + msgspec.json.encode(self._read()) + b"\n\n")
        except Exception:  # what is shown must never harm what runs
            logger.exception("the live view could not be brought up to date")

    def _settle(self, message: bytes | None) -> None:
        # The next one first: whoever is woken asks for it at once.
        future, self._next = self._next, asyncio.get_running_loop().create_future()
        future.set_result(message)
