"""A server among clients that say anything, in any order, at any pace: it stays up, and others do not notice."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.remote import messages
from pipeline.remote.messages import FrameRequest, OpenRequest, TensorHead, UploadRequest
from pipeline.remote.wire import MAGIC
from pipeline.scheduler.pipeline import Pipeline
from tests.remote.conftest import Child, frame, plan

LIMIT = 60.0
HELLO = messages.Greeting(messages.PROTOCOL, "0", 0.5)
MOST_THREADS = 2 * 32 + 16
MOST_GROWTH = 300 << 20
"""Bytes by which the server's memory may grow: its own pages, not what clients announce."""


def frame_message(message: Any) -> bytes:
    head = msgspec.msgpack.encode(message)
    return struct.pack("!4sI", MAGIC, len(head)) + head


def stage(rng: random.Random) -> StagePlan:
    extents = (0, 1, 64, 1 << 20, 1 << 40, -1)
    x, y = (
        TensorSpec(name, tuple(rng.choices(extents, k=rng.randrange(3))), rng.choice(("float32", "int8", "O")))
        for name in "xy"
    )
    return StagePlan("s", "there", (x,) if rng.random() < 0.9 else (), (y,), seconds=rng.choice((0.0, 0.01, 1e9)))


def conversation(rng: random.Random) -> bytes:
    """Return a conversation: mostly valid messages, often in a wrong order, with bytes changed or made up."""
    valid_stage = StagePlan("s", "there", (TensorSpec("x", (64,)),), (TensorSpec("y", (64,)),))
    choices: list[Callable[[], bytes]] = [
        lambda: frame_message(HELLO),
        lambda: frame_message(
            OpenRequest(
                rng.choice(("null", "simulated", "cpu", "gpu")), rng.choice((valid_stage, stage(rng))), None, ""
            )
        ),
        lambda: frame_message(FrameRequest(rng.choice((0, 0, 1, -1)), (TensorHead("float32", (64,)),))) + bytes(256),
        lambda: frame_message(FrameRequest(0, (TensorHead("float32", (1 << 27,)),))),
        lambda: frame_message(UploadRequest("0" * 64, rng.choice((0, 9, 1 << 40)))),
        lambda: frame_message(messages.TargetRequest()) if rng.random() < 0.02 else b"",
        lambda: rng.randbytes(rng.randrange(200)),
    ]
    order = [choices[0], choices[1], choices[2]] if rng.random() < 0.5 else []
    data = bytearray(b"".join(each() for each in [*order, *rng.choices(choices, k=rng.randrange(4))]))
    for _ in range(rng.choice((0, 0, 1, 5)) if data else 0):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def converse(port: int, rng: random.Random) -> None:
    """Say something in one of several manners, and leave in one of several."""
    client = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
    with client, contextlib.suppress(OSError):
        client.settimeout(0.5)
        manner, data = rng.choice(("at once", "slowly", "half")), conversation(rng)
        if manner == "slowly":
            for number in range(0, min(len(data), 40), 4):
                client.sendall(data[number : number + 4])
                time.sleep(0.002)
        else:
            client.sendall(data[: len(data) // 2] if manner == "half" else data)
        leaving = rng.choice(("close", "half-closed", "reset", "wait"))
        if leaving == "half-closed":
            client.shutdown(socket.SHUT_WR)
        if leaving == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif leaving != "close":
            client.settimeout(0.1)
            while client.recv(1 << 16):
                pass


def storm(server: Child, clients: int, conversations: int) -> None:
    process = psutil.Process(server.process.pid)
    with Pipeline(plan(server.address("null", "?patience=60&timeout=30"))) as running:
        assert np.array_equal(running.submit(frame(0)).result(LIMIT), frame(0))
        start_bytes, highest = process.memory_info().rss, 0

        def talk(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(conversations):
                converse(server.port, rng)

        threads = [threading.Thread(target=talk, args=(seed,)) for seed in range(clients)]
        for thread in threads:
            thread.start()
        number = 0
        while any(thread.is_alive() for thread in threads):
            number += 1
            assert np.array_equal(running.submit(frame(number)).result(LIMIT), frame(number))
            highest = max(highest, process.num_threads())
            time.sleep(0.005)
        for thread in threads:
            thread.join()
        assert server.process.poll() is None
        assert highest <= MOST_THREADS
        assert process.memory_info().rss - start_bytes < MOST_GROWTH
        assert running.statistics().failed == 0


def test_a_small_storm(server: Child) -> None:
    storm(server, 3, 12)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_large_storm(server: Child) -> None:
    storm(server, 12, 250)
