"""Bounded queue between workers, waking its reader on arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Permits:
    """Counted places to wait for without polling.

    Both this and `Channel` rest on `queue.SimpleQueue`, which is written in C and documented as safe between
    threads, and from signal handlers and finalizers too: a token in the queue is a free place.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}; it must be at least 1")
        self.capacity = capacity
        self._free: SimpleQueue[bool] = SimpleQueue()
        # One token per place: taking one is a single call in C, which an interrupt cannot tear.
        for _ in range(capacity):
            self._free.put(True)

    def take(self, timeout: float | None = None) -> bool:
        """Wait for a place; return False after `close`.

        Raises `TimeoutError` if none became free within `timeout` seconds; 0 does not wait, None waits for ever.
        """
        try:
            is_free = self._free.get(timeout=timeout)
        except Empty:
            raise TimeoutError(f"no place became free within {timeout} s") from None
        # The end is one token for any number of writers: each hands it to the next.
        if not is_free:
            self._free.put(False)  # for the next one who waits
        return is_free

    def give(self) -> None:
        """Free one taken place."""
        self._free.put(True)

    def close(self) -> None:
        """Wake all who wait, now and later."""
        self._free.put(False)


class Channel(Generic[Item]):
    """First-in, first-out queue of bounded `capacity`, for many writers and readers.

    `capacity`: items that may wait, at least 1; a writer waits for its place.
    """

    def __init__(self, capacity: int) -> None:
        self._places = Permits(capacity)
        # An `EntryChannel` tells the entrance instead: nobody waits for its places.
        self._made_room: Callable[[], object] = self._places.give
        self.items: deque[Item] = deque()
        # One token for each item at least: readers wait for tokens, so that an item can be taken back from the middle.
        self.tokens: SimpleQueue[bool] = SimpleQueue()

    def __len__(self) -> int:
        return len(self.items)

    def put(self, item: Item) -> None:
        """Wait for a place and write; closed channels discard the item."""
        if self._places.take():
            try:
                self.items.append(item)
                self.tokens.put(True)
            except BaseException:
                # Interrupted in between, maybe: a token too few keeps items back, and one too many does nothing.
                self.tokens.put(True)
                raise

    def get(self) -> Item | None:
        """Wait for an item; None once closed and drained."""
        while self.tokens.get():
            try:
                item = self.items.popleft()
            except IndexError:  # it was taken back
                continue
            # Before the stage runs, not after: the stage in front may hand over its next frame meanwhile.
            self._made_room()
            return item
        self.tokens.put(False)  # for the next reader
        return None

    def close(self) -> None:
        """Discard further writes, and end reads after the remaining items."""
        # A worker that waits for a place behind one that hangs would never end otherwise.
        self._places.close()
        self.tokens.put(False)


class EntryChannel(Channel[Item]):
    """Entrance channel with one writer, an `Entry`, checking room first.

    Readers call `made_room` when they have made room.
    """

    def __init__(self, capacity: int, made_room: Callable[[], object]) -> None:
        super().__init__(capacity)
        # The entrance has checked the room, under the ledger's lock; `Inlet.put` must not wait there.
        self.capacity, self._made_room = capacity, made_room

    def take_back(self, item: Item) -> bool:
        """Remove an unread item; return False if it was read."""
        try:
            self.items.remove(item)
        except ValueError:
            return False
        try:
            # The item's token goes too, or a busy reader would find one more for each frame that was cancelled.  If it
            # is the end's, it goes back.
            if not self.tokens.get_nowait():
                self.tokens.put(False)
        except Empty:  # a reader has the token, and will find nothing for it
            pass
        return True


class Inlet(Generic[Item]):
    """Channels of the first stages, written together; one writer, under a lock."""

    def __init__(self, channels: Sequence[EntryChannel[Item]]) -> None:
        self._channels = channels
        # Looked up once: `has_room` and `put` run for each frame, under the lock that all callers share.
        self._lines = [(channel.items, channel.capacity) for channel in channels]
        self._items = [channel.items for channel in channels]
        self._tokens = [channel.tokens for channel in channels]
        self._single = (self._items[0].append, self._tokens[0].put) if len(channels) == 1 else None

    def has_room(self) -> bool:
        """Test for room in all channels; readers only add more."""
        for items, capacity in self._lines:  # noqa: SIM110 - a generator takes twice as long
            if len(items) >= capacity:
                return False
        return True

    def put(self, item: Item) -> None:
        """Write an item to all channels, or none if interrupted before."""
        # Signals are served between two steps of Python code, and either of these is one.
        if self._single is not None:
            append_item, put_token = self._single
            append_item(item)
            put_token(True)
        else:
            list(map(deque.append, self._items, repeat(item)))
            self.wake()

    def wake(self) -> None:
        """Wake the readers: second half of `put`, repeatable."""
        for tokens in self._tokens:
            tokens.put(True)

    def take_back(self, item: Item) -> None:
        """Remove an item wherever nobody has read it yet."""
        for channel in self._channels:
            channel.take_back(item)
