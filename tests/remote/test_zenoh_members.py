"""Pools of servers that announce themselves by Zenoh's liveliness: they come and go while frames stream."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.remote_address import parse
from pipeline.errors import BoardError, InputError
from pipeline.measure.server_slots import ask_slots
from pipeline.remote.pool import Pool
from pipeline.scheduler import Pipeline
from tests.remote.conftest import LIMIT, Child, frame, plan, until

zenoh = pytest.importorskip("zenoh")

from pipeline.remote.zenoh_members import (  # noqa: E402 - see above
    PREFIX,
    announce_server,
    find_members,
    follow_announcements,
)


@pytest.fixture
def router() -> Iterator[Any]:
    """A router's endpoint, with what ends it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"tcp/127.0.0.1:{probe.getsockname()[1]}"
    settings = zenoh.Config()
    settings.insert_json5("mode", '"router"')
    settings.insert_json5("listen/endpoints", f'["{endpoint}"]')
    settings.insert_json5("scouting/multicast/enabled", "false")
    with contextlib.ExitStack() as stack:
        stack.enter_context(zenoh.open(settings))
        yield endpoint, stack.close


def in_rotation(pool: Pool) -> list[str]:
    return sorted(str(member.endpoint) for member in pool.members if member.error is None)


def test_members_come_go_and_outlive_the_router(serve: Callable[..., Child], router: Any) -> None:
    endpoint, end_router = router
    address = parse(f"pool:dock/null?via={endpoint}")
    options = ("--announce", f"dock?via={endpoint}", "--slots", 2)
    first = serve(*options)
    with contextlib.closing(Pool(())) as pool, follow_announcements(address, pool):
        until(lambda: in_rotation(pool) == [first.address()])
        second = serve(*options)
        until(lambda: in_rotation(pool) == sorted([first.address(), second.address()]))
        assert sum(member.slots for member in pool.members) == 4
        first.kill()
        until(lambda: [str(member.endpoint) for member in pool.members] == [second.address()])
        # What is lost with the router is only the word of who comes and goes.
        end_router()
        time.sleep(0.3)
        assert in_rotation(pool) == [second.address()]


def test_a_stage_runs_on_who_is_there(serve: Callable[..., Child], router: Any) -> None:
    endpoint, _ = router
    options = ("--announce", f"dock?via={endpoint}")
    servers = [serve(*options) for _ in range(2)]
    with Pipeline(plan(f"pool:dock/null?via={endpoint}", replicas=4)) as running:
        futures = [running.submit(frame(number)) for number in range(100)]
        servers[0].kill()
        futures += [running.submit(frame(number)) for number in range(100, 300)]
        for number, future in enumerate(futures):
            assert np.array_equal(future.result(LIMIT), frame(number))


def test_the_planner_counts_the_slots_of_those_that_are_announced(serve: Callable[..., Child], router: Any) -> None:
    endpoint, _ = router
    address = f"pool:dock/cpu?via={endpoint}"
    board = Board("b", (Device("cpu", cores=(0,)), Device("far", "remote", memory="far", address=address)))
    assert ask_slots(board).device("far").slots == 0
    for slots in (1, 2):
        serve("--announce", f"dock?via={endpoint}", "--cores", "0" if slots == 1 else "0,1", "--slots", slots)
    assert len(find_members(parse(address))) == 2
    assert ask_slots(board).device("far").slots == 3


def test_what_is_announced_as_no_address_is_left_out(router: Any) -> None:
    endpoint, _ = router
    address = parse(f"pool:dock/null?via={endpoint}")
    with announce_server(address, "127.0.0.1", 70000), announce_server(address, "127.0.0.1", 9):
        assert [member.port for member in find_members(address)] == [9]


def test_a_server_is_found_as_soon_as_it_is_announced(router: Any) -> None:
    # A declared token was once still on its way to the router, and a plan made then missed servers that said "ready".
    settings = zenoh.Config()
    settings.insert_json5("mode", '"client"')
    settings.insert_json5("connect/endpoints", f'["{router[0]}"]')
    settings.insert_json5("scouting/multicast/enabled", "false")
    with zenoh.open(settings) as client:
        for number in range(60):
            with announce_server(parse(f"pool:dock{number}/null?via={router[0]}"), "127.0.0.1", 9):
                assert len(list(client.liveliness().get(f"{PREFIX}/dock{number}/*", timeout=LIMIT))) == 1


def test_zenoh_that_is_not_there_is_named(serve: Callable[..., Child], capsys: pytest.CaptureFixture[str]) -> None:
    from pipeline.cli import main

    assert main(["serve", "--port", "0", "--announce", "dock?via=tcp/127.0.0.1:9"]) == 2
    assert "Zenoh cannot be reached" in capsys.readouterr().err
    assert main(["serve", "--port", "0", "--announce", "two words"]) == 2
    assert "is not a pool" in capsys.readouterr().err
    with (
        pytest.raises(InputError, match="cannot be reached"),
        announce_server(parse("pool:d?via=tcp/127.0.0.1:9"), "", 1),
    ):
        pass
    with pytest.raises(BoardError, match="no key"):
        from pipeline.remote.zenoh_members import parse_announcement

        parse_announcement("remote://a:1/cpu")
