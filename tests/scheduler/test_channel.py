import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.scheduler.channel import Channel, EntryChannel, Inlet, Permits
from tests.support.interrupt_at import InterruptAt


def in_thread(call: Callable[[], Any]) -> Callable[[], Any]:
    """Start `call` in a thread and return what waits for its result."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()

    def wait() -> Any:
        thread.join(30)
        assert results, "it never returned"
        return results[0]

    return wait


def test_items_come_out_in_the_order_they_went_in() -> None:
    channel = Channel[int](5)
    for item in range(5):
        channel.put(item)
    assert len(channel) == 5
    assert [channel.get() for _ in range(5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("capacity", [0, -1])
def test_capacity_is_checked(capacity: int) -> None:
    with pytest.raises(ValueError, match=f"capacity is {capacity}; it must be at least 1"):
        Channel[int](capacity)


def test_reader_wakes_on_arrival() -> None:
    channel = Channel[str](1)
    wait = in_thread(channel.get)
    channel.put("frame")
    assert wait() == "frame"


def test_writer_waits_for_a_place() -> None:
    channel = Channel[int](2)
    channel.put(0)
    channel.put(1)
    items = threading.Event()

    def write() -> bool:
        channel.put(2)
        items.set()
        return True

    wait = in_thread(write)
    assert not items.is_set()
    assert len(channel) == 2
    assert channel.get() == 0
    wait()
    assert [channel.get(), channel.get()] == [1, 2]


def test_close_lets_readers_finish_what_is_there_and_then_go() -> None:
    channel = Channel[int](2)
    channel.put(1)
    channel.close()
    assert [channel.get(), channel.get(), channel.get()] == [1, None, None]


def test_close_wakes_readers_and_writers() -> None:
    empty_channel, full = Channel[int](1), Channel[int](1)
    full.put(1)
    waits = [
        in_thread(empty_channel.get),
        in_thread(empty_channel.get),
        in_thread(lambda: full.put(2)),
        in_thread(lambda: full.put(3)),
    ]
    empty_channel.close()
    full.close()
    assert [wait() for wait in waits] == [None] * 4
    assert [full.get(), full.get()] == [1, None], "what found no place is forgotten"


def test_places_time_out_and_come_back() -> None:
    permits = Permits(1)
    assert permits.take(0)
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        permits.take(0.01)
    with pytest.raises(TimeoutError):
        permits.take(0)
    permits.give()
    assert permits.take(0)


def test_closed_places_wake_everybody() -> None:
    permits = Permits(1)
    permits.take()
    waits = [in_thread(permits.take) for _ in range(3)]
    permits.close()
    assert [wait() for wait in waits] == [False] * 3


def test_an_interrupted_writer_keeps_no_item_of_others_back() -> None:
    """Between an item and its token, an interrupt once made every later reader one item late."""
    for step in range(1, 12):
        channel = Channel[int](4)
        with contextlib.suppress(KeyboardInterrupt), InterruptAt(step):
            channel.put(1)
        channel.put(2)
        channel.close()
        assert list(iter(channel.get, None)) in ([2], [1, 2])


@pytest.mark.parametrize(
    ("items", "tokens_read", "cancelled", "rest", "tokens_left"),
    [
        # An item goes with its token.  A full stop closes the channel.
        ("ab", 0, "a", "b", 1),
        ("ab", 0, "b", "a", 1),
        ("ab.", 0, "a", "b", 2),
        ("a.", 0, "a", "", 1),
        (".", 0, "a", "", 1),
        # A reader that has the item's token already finds nothing for it.
        ("a", 1, "a", "", 0),
        ("ab", 1, "a", "b", 0),
        ("ab", 2, "b", "a", 0),
        # The token that is left is the end's, and all readers need it.
        ("a.", 1, "a", "", 1),
        ("ab.", 2, "b", "a", 1),
    ],
)
def test_an_item_that_is_taken_back_leaves_the_rest_and_the_end(
    items: str, tokens_read: int, cancelled: str, rest: str, tokens_left: int
) -> None:
    channel = EntryChannel[str](4, lambda: None)
    inlet = Inlet([channel])
    for item in items.rstrip("."):
        inlet.put(item)
    if items.endswith("."):
        channel.close()
    for _ in range(tokens_read):
        assert channel.tokens.get(timeout=30), "a reader is between a token and its item"
    assert channel.take_back(cancelled) == (cancelled in items)
    assert not channel.take_back(cancelled), "it was there once"
    assert channel.tokens.qsize() == tokens_left
    # Those readers go on, and one more comes.
    early_items = [channel.items.popleft() for _ in range(min(tokens_read, len(channel)))]
    if not items.endswith("."):
        channel.close()
    later_items = in_thread(lambda: list(iter(channel.get, None)))()
    assert [*early_items, *later_items] == list(rest)
    assert in_thread(channel.get)() is None, "every reader sees the end"
