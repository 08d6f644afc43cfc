"""A server whose clients sleep, dawdle or keep its devices: the others are served all the same."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.remote import messages
from pipeline.remote.connection import ServerBusy, ServerRefusal
from pipeline.remote.device_threads import ServerDevices
from pipeline.remote.offer import Offer
from pipeline.remote.server import Server
from pipeline.remote.session import SessionLimits
from pipeline.remote.store import FileStore
from pipeline.scheduler.pipeline import Pipeline
from tests.remote.conftest import frame, in_thread, plan
from tests.remote.test_server import HELLO, LIMIT, STAGE, connect, exchange, gone, raw, works

Start = Callable[..., Server]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a server in this process; it ends with the test."""
    with contextlib.ExitStack() as stack:

        def begin(sessions: int = 4, **limits: float) -> Server:
            offer = Offer(FileStore(), ServerDevices(()), (), largest_frame=1_000_000)
            running = Server("127.0.0.1", 0, offer, sessions=sessions, limits=SessionLimits(**limits))
            return stack.enter_context(in_thread(running))

        yield begin


def test_clients_that_say_hello_and_sleep_make_room(start: Start) -> None:
    """32 of them used to lock everybody out for good."""
    server = start(idle_s=0.05)
    sleepers = [next(raw(server)) for _ in range(4)]
    for client in sleepers:
        exchange(client, HELLO)
    time.sleep(0.1)
    for _ in range(6):
        works(server)
    is_gone = 0
    for client in sleepers:
        client.limit(0.05)
        with contextlib.suppress(TimeoutError):
            with pytest.raises(ConnectionError):
                client.receive()
            is_gone += 1
        client.close()
    assert 1 <= is_gone <= 4


def test_a_pipeline_that_made_room_goes_on(start: Start) -> None:
    server = start(sessions=1, idle_s=0.05)
    address = f"remote://127.0.0.1:{server.port}/null?patience=30"
    with Pipeline(plan(address)) as running:
        for number in range(3):
            assert np.array_equal(running.submit(frame(number)).result(LIMIT), frame(number))
            time.sleep(0.1)
            works(server)
            gone(server)


def test_who_is_busy_makes_no_room_and_who_comes_is_told_to_come_again(start: Start) -> None:
    server = start(sessions=2, idle_s=60.0)
    two = [connect(server) for _ in range(2)]
    with pytest.raises(ServerBusy, match=r"is busy: this server already has 2 clients"):
        connect(server)
    for client in two:
        client.close()


def test_a_pipeline_waits_for_a_server_that_is_busy(start: Start) -> None:
    """The refusal counted as final."""
    server = start(sessions=1, idle_s=60.0)
    first = connect(server)
    leave = threading.Timer(0.3, first.close)
    leave.start()
    with Pipeline(plan(f"remote://127.0.0.1:{server.port}/null?patience=30")) as running:
        assert np.array_equal(running.submit(frame(1)).result(LIMIT), frame(1))
    leave.join()


def test_who_sends_a_byte_now_and_then_is_let_go(start: Start) -> None:
    server = start(sessions=1, greeting_s=0.3, idle_s=60.0)
    wire = next(raw(server))
    with pytest.raises(ConnectionError):
        for _ in range(1000):
            wire.connection.sendall(b"S")
            time.sleep(0.02)
            if not wire.quiet():
                raise ConnectionResetError
    wire.close()
    gone(server)
    works(server)


def sleeping_stage(seconds: float) -> StagePlan:
    x, y = TensorSpec("x", (4,)), TensorSpec("y", (4,))
    return StagePlan("s", "there", (x,), (y,), seconds=seconds)


@pytest.mark.parametrize("seconds", [1e9, float("inf"), float("nan"), -1.0])
def test_a_stage_that_would_keep_the_simulated_device_is_refused(start: Start, seconds: float) -> None:
    server = start()
    wire = next(raw(server))
    exchange(wire, HELLO)
    wire.send(messages.OpenRequest("simulated", sleeping_stage(seconds), None, ""))
    refusals = wire.receive()
    assert isinstance(refusals, messages.RefusalAnswer)
    assert "this server simulates at most 30 s" in refusals.reason
    wire.close()
    works(server)


def test_loading_does_not_wait_for_frames_that_wait(start: Start) -> None:
    server = start(sessions=8)
    slow = sleeping_stage(0.3)
    order: list[str] = []
    clients = [connect(server, device="simulated") for _ in range(4)]
    numbers = [client.open(slow, None) for client in clients]

    def run(number: int) -> None:
        clients[number].run(numbers[number], slow, [np.zeros(4, np.float32)])
        order.append("frame")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    loader = connect(server, device="simulated")
    loader.open(STAGE, None)
    order.append("loaded")
    for thread in threads:
        thread.join(LIMIT)
    assert order.index("loaded") <= 2
    for client in (*clients, loader):
        client.close()


def test_a_refusal_that_is_final_is_not_waited_for(start: Start) -> None:
    server = start()
    begin = time.monotonic()
    with pytest.raises(ServerRefusal, match="no device 'gpu'"):
        Pipeline(plan(f"remote://127.0.0.1:{server.port}/gpu?patience=50"))
    assert time.monotonic() - begin < 40
