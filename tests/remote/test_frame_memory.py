"""Memory that a server shares with clients of its machine: large frames go through it, and nobody is trusted more."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest

from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.core.remote_address import parse
from pipeline.errors import DeviceLost
from pipeline.remote import messages
from pipeline.remote.connection import Connection
from pipeline.remote.frame_memory import NAME, FrameMemory, area_bytes, put, views
from pipeline.remote.messages import ClientMessage, ServerMessage, TensorHead
from pipeline.remote.tensors import heads
from pipeline.remote.wire import Wire
from tests.remote.conftest import LIMIT, Child

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory files of Linux")


def echo(*sizes: int) -> StagePlan:
    tensors = tuple(TensorSpec(f"x{number}", (size,), "float32") for number, size in enumerate(sizes))
    return StagePlan("echo", "null", tensors, tensors)


def connect(server: Child) -> Connection:
    return Connection(parse(server.address()))


def shared_areas() -> int:
    """Return how many shared memories this process has."""
    return Path("/proc/self/maps").read_text().count(f"/memfd:{NAME}")


def test_large_frames_come_back_as_they_went_and_stay(server: Child) -> None:
    random = np.random.default_rng(0)
    connection, before = connect(server), shared_areas()
    small, large = echo(4), echo(100_000, 3)
    program = connection.open(small, None)
    # 200 kB: less processor time by a connection.
    connection.open(echo(50_000), None)
    assert shared_areas() == before, "nothing is gained for so few bytes"
    larger = connection.open(large, None)
    assert shared_areas() == before + 1
    frames = [[random.standard_normal(size).astype(np.float32) for size in (100_000, 3)] for _ in range(3)]
    results = [connection.run(larger, large, arrays) for arrays in frames]
    assert np.array_equal(connection.run(program, small, [frames[0][0][:4]])[0], frames[0][0][:4])
    for arrays, outputs in zip(frames, results, strict=True):
        # Each has its own bytes, also after the next frame.
        assert all(map(np.array_equal, arrays, outputs))
    connection.close()


def test_a_later_stage_may_need_more_and_a_larger_frame_than_said_goes_by_wire(server: Child) -> None:
    connection = connect(server)
    for size in (100_000, 50_000, 400_000):
        stage = echo(size)
        program = connection.open(stage, None)
        # Of a stage whose sizes vary, the plan says only one.
        for count in (size, 2 * size):
            array = np.arange(count, dtype=np.float32)[::-1]
            assert np.array_equal(connection.run(program, stage, [array])[0], array)
    connection.close()


def test_what_a_server_offers_is_found_on_its_machine_only() -> None:
    memory = FrameMemory.create(area_bytes(echo(100).inputs), 0)
    offer = memory.offer
    found = FrameMemory.attach(offer)
    assert found is not None
    array = np.arange(100, dtype=np.float32)
    assert not put(found.requests, [array], heads([array])), "a few bytes go by wire"
    with open("/dev/null") as nothing:  # noqa: PTH123 - its number is wanted
        for other in (
            {"key": bytes(16)},
            {"descriptor": nothing.fileno()},
            {"descriptor": 10_000},
            {"process": 1 << 30},
            {"request_bytes": 1 << 20},
        ):
            assert FrameMemory.attach(msgspec.structs.replace(offer, **other)) is None
    with pytest.raises(ValueError, match="larger than the shared memory"):
        views(found.requests, [TensorHead("float32", (1000,))])
    descriptor = os.open(f"/proc/{offer.process}/fd/{offer.descriptor}", os.O_RDWR)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    os.close(descriptor)
    for each in (found, memory):
        each.close()


@pytest.mark.parametrize(
    ("opened", "size", "reason"),
    [(4, 4, "memory that is not shared"), (100_000, 1_000_000, "larger than the shared memory")],
)
def test_a_frame_in_memory_that_is_not_there_is_refused(server: Child, opened: int, size: int, reason: str) -> None:
    wire: Wire[ServerMessage] = Wire(socket.create_connection(("127.0.0.1", server.port), LIMIT), ServerMessage)
    wire.send(messages.Greeting(messages.PROTOCOL, "0", 1.0))
    assert isinstance(wire.receive(), messages.Welcome)
    wire.send(messages.OpenRequest("null", echo(opened), None, "0"))
    assert isinstance(wire.receive(), messages.OpenAnswer)
    wire.send(messages.FrameRequest(0, (TensorHead("float32", (size,)),), in_memory=True))
    answer = wire.receive()
    assert isinstance(answer, messages.RefusalAnswer)
    assert reason in answer.reason
    wire.close()


def test_a_server_that_shares_nothing_may_not_answer_in_memory() -> None:
    """The client trusts a server no more than the server the client."""
    welcome = messages.Welcome(messages.PROTOCOL, "0", "0", "", "", ("null",), (), 0, uploads=False)
    heads = (TensorHead("float32", (4,)),)
    answers = (welcome, messages.OpenAnswer(0), messages.FrameAnswer(heads, 0.0, in_memory=True))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            wire: Wire[ClientMessage] = Wire(listener.accept()[0], ClientMessage)
            for message in answers:
                wire.receive()
                wire.send(message)
            wire.fill(memoryview(bytearray(16)))
            wire.close()

        thread = threading.Thread(target=answer)
        thread.start()
        connection = Connection(parse(f"remote://127.0.0.1:{listener.getsockname()[1]}/null"))
        program = connection.open(echo(4), None)
        with pytest.raises(DeviceLost, match="in memory that is not shared"):
            connection.run(program, echo(4), [np.zeros(4, np.float32)])
        thread.join(LIMIT)
