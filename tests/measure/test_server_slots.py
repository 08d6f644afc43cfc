"""Slots of servers: told by them, unless the board says them or nobody answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipeline.core.board.board import Board, Device
from pipeline.executor.devices.null import NullRuntime
from pipeline.measure.server_slots import ask_slots
from pipeline.remote.device_threads import ServerDevices
from pipeline.remote.offer import Offer
from pipeline.remote.server import Server
from pipeline.remote.store import FileStore
from tests.remote.conftest import in_thread

NOBODY = "remote://127.0.0.1:9/cpu"


@pytest.fixture
def ports() -> Iterator[Callable[[int], int]]:
    """Servers with so many slots, by their ports."""
    with contextlib.ExitStack() as stack:

        def start(slots: int) -> int:
            offer = Offer(FileStore(), ServerDevices((), NullRuntime, slots=slots), ())
            return stack.enter_context(in_thread(Server("127.0.0.1", 0, offer))).port

        yield start


def told(address: str, **options: Any) -> int:
    board = Board("b", (Device("cpu", cores=(0,)), Device("far", "remote", memory="far", address=address, **options)))
    return ask_slots(board).device("far").slots


def test_a_server_tells_its_slots_and_a_pool_those_of_its_members(ports: Callable[[int], int]) -> None:
    four, two = (f"remote://127.0.0.1:{ports(slots)}/cpu" for slots in (4, 2))
    assert told(four) == 4
    assert told(f"{two} {four} local:cpu") == 2, "alternatives take over, one at a time"
    assert told(f"pool:{four},{two}") == 6
    assert told(f"pool:{four},{NOBODY}") == 5, "a member that is away will be back"
    assert told(four.replace("/cpu", "/vta")) == 1, "an accelerator is there once"


def test_a_board_that_says_its_slots_is_not_asked_for(ports: Callable[[int], int]) -> None:
    address = f"remote://127.0.0.1:{ports(4)}/cpu"
    assert told(address, slots=3) == 3
    assert told(address, cores=(0, 1)) == 4, "the server knows better than a list of cores"
    assert told(NOBODY, cores=(0, 1)) == 0
