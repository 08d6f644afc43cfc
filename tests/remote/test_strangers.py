"""Strangers: what clients that show nothing may make a server do."""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Iterator

import msgspec
import pytest

from pipeline.remote import messages
from pipeline.remote.device_threads import ServerDevices
from pipeline.remote.entrance import BURST_S, SHARE, StrangerBudget
from pipeline.remote.offer import Offer
from pipeline.remote.rate_limit import MOST_LINES, PERIOD_S, RefusalLog
from pipeline.remote.server import Server
from pipeline.remote.store import FileStore
from pipeline.remote.wire import LARGEST_GREETING, LARGEST_HEAD
from tests.remote.conftest import in_thread
from tests.remote.test_server import HELLO, OPEN, RawWire, raw, refusal, works


@pytest.fixture
def server() -> Iterator[Server]:
    with in_thread(Server("127.0.0.1", 0, Offer(FileStore(), ServerDevices(()), ()))) as running:
        yield running


@pytest.fixture
def wire(server: Server) -> Iterator[RawWire]:
    yield from raw(server)


def prelude(nbytes: int) -> bytes:
    return struct.pack("!4sI", b"SoC1", nbytes)


@pytest.mark.parametrize("nbytes", [LARGEST_GREETING + 1, LARGEST_HEAD, 3_200_000])
def test_the_first_message_is_small(wire: RawWire, server: Server, nbytes: int) -> None:
    """64 strangers made a server allocate 669 MB by heads of 3.2 MB, of which they had sent nothing."""
    wire.connection.sendall(prelude(nbytes))
    reason = refusal(wire)
    assert f"the first message is no greeting: the head of a message has {nbytes} bytes; at most 8192" in reason
    works(server)


@pytest.mark.parametrize("message", [OPEN, messages.TargetRequest(), messages.FrameRequest(0, ())])
def test_the_first_message_is_a_greeting(wire: RawWire, message: msgspec.Struct) -> None:
    wire.send(message)
    assert "the first message is no greeting: a message is not valid" in refusal(wire)


def test_who_is_known_may_send_more(wire: RawWire) -> None:
    wire.send(HELLO)
    assert isinstance(wire.receive(), messages.Welcome)
    wire.connection.sendall(prelude(LARGEST_GREETING + 1) + bytes(LARGEST_GREETING + 1))
    assert "a message is not valid" in refusal(wire)


def test_refusals_are_logged_with_their_address_at_a_limited_rate(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2 * MOST_LINES):
        with contextlib.closing(next(raw(server))) as stranger:
            stranger.connection.sendall(prelude(LARGEST_HEAD))
            refusal(stranger)
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == MOST_LINES
    assert all(line.startswith("a client at 127.0.0.1 is refused: the first message") for line in lines)


def test_what_is_not_logged_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    log = RefusalLog(lambda: clock[0])
    for _ in range(MOST_LINES + 7):
        log.note("10.0.0.1", "no")
    clock[0] += PERIOD_S
    log.note("", "never")
    log.note("10.0.0.2", "never")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[MOST_LINES - 1 :] == [
        "a client at 10.0.0.1 is refused: no",
        "a client is refused: never (and 7 others since the last line)",
        "a client at 10.0.0.2 is refused: never",
    ]


def test_the_budget_of_strangers_fills_up_with_time() -> None:
    clock = [0.0]
    budget = StrangerBudget(lambda: clock[0])
    for _ in range(10):
        assert budget.pause() == 0
        budget.spend(BURST_S / 10)
    budget.spend(SHARE)
    assert budget.pause() == pytest.approx(1.0)
    clock[0] += 0.5
    assert budget.pause() == pytest.approx(0.5)
    clock[0] += 1000.0
    budget.spend(BURST_S)
    assert budget.pause() == 0
    budget.spend(SHARE * 3)
    assert budget.pause() == pytest.approx(3.0)
