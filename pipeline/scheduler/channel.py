"""A bounded queue between workers that wakes its reader on arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Places:
    """A number of places to wait for; waiting costs nothing and ends on arrival.

    Both this and `Channel` rest on `queue.SimpleQueue`, which is written in C and documented as safe between
    threads, and from signal handlers and finalizers too: a token in the queue is a free place.

    Parameters
    ----------
    capacity : int
        How many there are, at least 1.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}; it must be at least 1")
        self.capacity = capacity
        self._free: SimpleQueue[bool] = SimpleQueue()
        for _ in range(capacity):
            self._free.put(True)

    def take(self, timeout: float | None = None) -> bool:
        """Wait for a place and return True, or return False if there will be none because of `close`.

        Raises
        ------
        TimeoutError
            If none became free within `timeout` seconds; 0 does not wait, None waits for ever.
        """
        try:
            taken = self._free.get(timeout=timeout)
        except Empty:
            raise TimeoutError(f"no place became free within {timeout} s") from None
        if not taken:
            self._free.put(False)  # for the next one who waits
        return taken

    def try_take(self) -> bool:
        """Take a place if there is one, and return whether there was."""
        # An exception costs more than the question.
        if self._free.empty():
            return False
        try:
            return self.take(0)
        except TimeoutError:
            return False

    def give(self) -> None:
        """Free one place that was taken."""
        self._free.put(True)

    def close(self) -> None:
        """Wake all who wait, now and later."""
        self._free.put(False)


class Channel(Generic[Item]):
    """Items from many writers to many readers, first in, first out, at most `capacity` of them.

    Parameters
    ----------
    capacity : int
        How many items may wait, at least 1; a writer waits for its place.
    freed : callable, optional
        Called by a reader that has made room.
    """

    def __init__(self, capacity: int, freed: Callable[[], object] | None = None) -> None:
        self.places = Places(capacity)
        self._freed = freed
        self._items: deque[Item] = deque()
        # One token for each item at least: readers wait for tokens, so that an item can be taken back from the middle.
        self._tokens: SimpleQueue[bool] = SimpleQueue()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        """Wait for a place, then hand over `item`; a closed channel forgets it."""
        if self.places.take():
            self.put_reserved(item)

    def put_reserved(self, item: Item) -> None:
        """Hand over `item` on a place that the caller has already taken from `places`."""
        self._items.append(item)
        self._tokens.put(True)

    def get(self) -> Item | None:
        """Wait for an item; None means that the channel is closed and everything before has been read."""
        while self._tokens.get():
            try:
                item = self._items.popleft()
            except IndexError:  # it was taken back
                continue
            self.places.give()
            if self._freed is not None:
                self._freed()
            return item
        self._tokens.put(False)  # for the next reader
        return None

    def take_back(self, item: Item) -> bool:
        """Free the place of an item that nobody has read yet, and return whether that was so."""
        try:
            self._items.remove(item)
        except ValueError:
            return False
        try:
            if not self._tokens.get_nowait():
                self._tokens.put(False)
        except Empty:  # a reader has the token, and will find nothing for it
            pass
        self.places.give()
        return True

    def close(self) -> None:
        """Let writers go on without effect, and readers once they have read what is there."""
        self.places.close()
        self._tokens.put(False)
