"""Pools whose members misbehave: judged by their results, they leave the rotation, and come back when they are good."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.core.remote_address import parse
from pipeline.errors import DeviceLost, PipelineError
from pipeline.remote.connection import Connection
from pipeline.remote.endpoint import Endpoint, RemoteSession
from pipeline.remote.member_health import MOST_FAULTS, RECENT_S, Cause, Health, time_limit
from pipeline.remote.pool import Pool
from pipeline.remote.probes import MOST_THREADS, Probes
from pipeline.scheduler import Pipeline
from tests.remote.conftest import LIMIT, frame, plan, until
from tests.support.misbehaving_server import WAYS, misbehaving, pool_address


def outcomes(running: Pipeline, count: int) -> list[BaseException]:
    """The errors of some frames; the others have results of the right shape."""
    futures = [running.submit(frame(number)) for number in range(count)]
    errors = [future.exception(LIMIT) for future in futures]
    for future, error in zip(futures, errors, strict=True):
        assert error is not None or future.result().shape == (4,)
    return [error for error in errors if error is not None]


@pytest.mark.parametrize("way", WAYS)
def test_two_of_four_that_misbehave_cost_hardly_a_frame(way: str) -> None:
    """Members that greet came straight back, and lost three quarters of the frames; others' results had any shape."""
    with (
        misbehaving(way, way, "good", "good") as servers,
        Pipeline(plan(pool_address(servers), replicas=8)) as running,
    ):
        assert len(outcomes(running, 200)) <= 2
        assert sum(server.frames for server in servers[2:]) >= 198
        # Out after three, and tried out now and then.
        assert max(server.frames for server in servers[:2]) <= 20


def test_who_misbehaves_now_and_then_is_still_used() -> None:
    with misbehaving("good", "good") as servers, Pipeline(plan(pool_address(servers), replicas=4)) as running:
        assert not outcomes(running, 10)
        servers[0].way = "close"
        assert not outcomes(running, 20)
        servers[0].way, before = "good", servers[0].frames
        until(lambda: outcomes(running, 4) or servers[0].frames > before + 10)
        assert running.statistics().failed == 0


def test_a_frame_that_fails_everywhere_fails_with_its_error_and_blames_nobody() -> None:
    with misbehaving("fail", "fail") as servers, Pipeline(plan(pool_address(servers), replicas=4)) as running:
        errors = outcomes(running, 20)
        assert len(errors) == 20
        assert all("the accelerator is in a bad state" in str(error) for error in errors)
        for server in servers:
            server.way = "good"
        assert not outcomes(running, 20)


def test_a_slow_frame_of_the_only_member_is_waited_for() -> None:
    """Nobody else could compute it, so that a limit would only make it slower."""
    with misbehaving("good") as (server,), Pipeline(plan(pool_address([server]), replicas=1)) as running:
        assert not outcomes(running, 20)
        server.seconds, before = 0.6, server.frames
        assert not outcomes(running, 1)
        assert server.frames == before + 1


def test_a_pipeline_begins_with_one_good_member_and_takes_the_others_later() -> None:
    """Two that refused kept it from starting, and one that refused once was out for ever."""
    with (
        misbehaving("not open", "not open", "not open", "good") as servers,
        Pipeline(plan(pool_address(servers), replicas=8)) as running,
    ):
        assert not outcomes(running, 20)
        for server in servers:
            server.way = "good"
        until(lambda: outcomes(running, 4) or all(server.frames for server in servers))
        assert running.statistics().failed == 0


def test_all_that_refuse_at_the_start_are_named_at_once() -> None:
    expected = pytest.raises(PipelineError, match=r"the stage cannot be loaded; .*the stage cannot be loaded")
    with misbehaving("not open", "not open") as servers, expected:
        Pipeline(plan(pool_address(servers, "?patience=50")))


def test_a_server_that_only_says_that_it_is_alive_has_a_time_limit() -> None:
    """The stream stood for as long as it said so."""
    with misbehaving("endless") as (server,):
        connection = Connection(parse(server.address("?limit=0.2")))
        stage = plan("").stages[1]
        number = connection.open(stage, None)
        with pytest.raises(DeviceLost, match=r"alive, and has not answered for 0\.2 s; '\?limit=SECONDS'"):
            connection.run(number, stage, [frame(1)])


@pytest.mark.parametrize(
    ("way", "reason"),
    [("other shape", r"a result is float32\[7\]; the stage makes z: float32\[4\]"), ("other dtype", r"is int8\[4\];")],
)
def test_a_result_that_is_not_the_plans_is_none(way: str, reason: str) -> None:
    with misbehaving(way) as (server,):
        connection = Connection(parse(server.address()))
        stage = plan("").stages[1]
        number = connection.open(stage, None)
        with pytest.raises(DeviceLost, match=reason):
            connection.run(number, stage, [frame(1)])


class Place(Endpoint):
    """A member that is always there."""

    overlaps = False

    def count_slots(self) -> int:
        return 1

    def connect(self) -> RemoteSession:
        raise AssertionError("no session is begun")


def test_a_place_that_is_free_wakes_the_first_in_line_alone() -> None:
    """Each frame woke all who waited: 128 workers on 64 places had a fifth of the rate."""
    looks = 0
    turns: list[int] = []

    def given_up() -> bool:
        nonlocal looks
        looks += 1
        return False

    with contextlib.closing(Pool([Place()])) as pool:
        stages = pool.enter("stages", [])
        held = pool.take(stages, None, LIMIT, given_up)

        def wait(number: int) -> None:
            place = pool.take(stages, None, LIMIT, given_up)
            turns.append(number)
            pool.give_back(place)

        threads = [threading.Thread(target=wait, args=(number,)) for number in range(30)]
        for count, thread in enumerate(threads, 1):
            thread.start()
            # One after the other, and each looks once before it waits.
            until(partial(lambda count: looks >= count, count))
        waiting = looks
        pool.give_back(held)
        for thread in threads:
            thread.join(LIMIT)
        assert turns == list(range(30))
        # Whoever is woken has a place, and does not have to look whether it still wants one.
        assert looks == waiting


def test_a_closed_pool_keeps_neither_who_waits_nor_a_session() -> None:
    closed_connections: list[bool] = []
    errors: list[str] = []
    has_looked = threading.Event()
    pool = Pool([Place()])
    stages = pool.enter("stages", [])
    held = pool.take(stages, None, LIMIT, lambda: False)
    session: Any = SimpleNamespace(connection=SimpleNamespace(close=partial(closed_connections.append, True)))
    held.session = session

    def given_up() -> bool:
        has_looked.set()
        return False

    def wait() -> None:
        try:
            pool.take(stages, None, LIMIT, given_up)
        except DeviceLost as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert has_looked.wait(LIMIT)
    pool.close()
    thread.join(LIMIT)
    assert errors == ["the pool is closed"]
    assert not closed_connections
    pool.give_back(held)
    assert closed_connections == [True], "nobody would close it later"


@pytest.mark.parametrize(
    ("causes", "pauses"),
    [
        ([Cause.AWAY] * 7, [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]),
        ([Cause.FAULT] * MOST_FAULTS, [0.0, 0.0, 1.0]),
        ([Cause.FAULT] * (MOST_FAULTS + 6), [0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]),
        ([Cause.HANG, Cause.FAULT, Cause.HANG], [0.0, 1.0, 2.0]),
        ([Cause.REFUSAL] * 5, [1.0, 2.0, 4.0, 8.0, 10.0]),
    ],
)
def test_pauses_grow_with_outages(causes: Sequence[Cause], pauses: Sequence[float]) -> None:
    health, clock_s, seen = Health(), 100.0, []
    for cause in causes:
        seen.append(health.leave(cause, DeviceLost("lost"), clock_s))
        health.come_back(clock_s)
    assert seen == pauses


def test_who_does_well_for_long_begins_anew() -> None:
    health = Health()
    for _ in range(5):
        health.leave(Cause.FAULT, DeviceLost("lost"), 0.0)
        health.come_back(0.0)
    assert health.count_faults(RECENT_S / 2) == 5
    assert health.count_faults(RECENT_S + 1) == 0
    assert [health.leave(Cause.FAULT, DeviceLost("lost"), RECENT_S + 1) for _ in range(3)] == [0.0, 0.0, 1.0]


def test_time_limits_follow_what_is_usual() -> None:
    assert time_limit(0.0) == float("inf")
    assert time_limit(0.001) == 0.25
    health = Health()
    for seconds in (0.1, 1.0, 0.1):
        health.note_time(seconds)
    assert time_limit(health.usual_s) == pytest.approx(9.1)


def test_many_that_do_not_answer_take_few_threads_and_a_new_one_is_asked() -> None:
    """1,500 announcements of servers that were not there made 1,417 threads."""
    probes, ending = Probes("probe"), threading.Event()
    asked: list[Any] = []

    def hang() -> float:
        asked.append(threading.get_ident())
        ending.wait(0.002)
        return 0.0

    for _ in range(1500):
        probes.add(hang)
    answer = threading.Event()
    until(lambda: len(asked) > 100)
    probes.add(answer.set)
    assert answer.wait(LIMIT)
    assert len(set(asked)) <= MOST_THREADS
    probes.close(LIMIT)
    count = len(asked)
    probes.add(hang)
    time.sleep(0.02)
    assert len(asked) == count
