"""Pipelines whose frames are computed by replicas on a cluster: results, order, books, losses, and their number."""

from __future__ import annotations

import os
import signal
from functools import partial
from typing import Any

import numpy as np
import pytest

from pipeline.cluster import ClusterPipeline, load
from pipeline.errors import ArgumentError, DeviceLost, StageError
from pipeline.scheduler import Trace
from tests.cluster.conftest import LIMIT, all_ready, bundle, frame, until


def stream(running: ClusterPipeline, count: int, elements: int = 4) -> tuple[int, int]:
    """Submit frames and return how many were delivered, each as it was, and how many failed."""
    ends: list[int] = []
    futures = []
    for number in range(count):
        future = running.submit(frame(number, elements))
        future.add_done_callback(partial(_note_end, ends, number))
        futures.append(future)
    errors = [future.exception(LIMIT) for future in futures]
    for number, (future, error) in enumerate(zip(futures, errors, strict=True)):
        if error is None:
            np.testing.assert_array_equal(future.result(), frame(number, elements))
    running.drain(timeout=LIMIT)
    assert ends == sorted(ends)
    failed = sum(error is not None for error in errors)
    return count - failed, failed


def _note_end(ends: list[int], number: int, _: object) -> None:
    ends.append(number)


def balance(running: ClusterPipeline) -> None:
    books = running.statistics()
    ends = books.delivered + books.failed + books.cancelled + sum(books.dropped.values())
    assert (books.submitted, books.in_flight) == (ends, 0)


# Above and below what Ray sends along with a call, and above what is cut into pieces.
@pytest.mark.parametrize("elements", [4, 60_000, 1_500_000])
@pytest.mark.parametrize("node", ["first", "node:__internal_head__"])
def test_frames_reach_a_node_and_come_back(cluster: Any, node: str, elements: int) -> None:
    with load(bundle(elements=elements), replicas=1, resources={node: 0.01}) as running:
        assert stream(running, 10, elements) == (10, 0)
        balance(running)


def test_replicas_share_a_stream(cluster: Any) -> None:
    trace = Trace()
    with load(bundle(seconds=2e-3), replicas=3, trace=trace) as running:
        until(lambda: all_ready(running, 3))
        assert stream(running, 300) == (300, 0)
        balance(running)
        assert all(each.frames for each in running.replicas)
        assert sum(each.frames for each in running.replicas) == 300
        statistics = running.statistics()
    own, *stages = statistics.stages
    assert (own.name, own.frames_out) == ("cluster", 300)
    assert [(stage.name, stage.replicas, stage.frames_out) for stage in stages] == [
        ("stage0", 3, 300),
        ("stage1", 3, 300),
    ]
    assert all(stage.run_s.p50 >= 0.002 for stage in stages)
    events = [event for event in trace.events() if event.stage == "stage1" and event.kind == "run"]
    assert {event.replica for event in events} == {0, 1, 2}
    assert sorted(event.frame for event in events) == list(range(300))
    # By one clock: what the stages did with a frame is inside of what the caller's worker did.
    spans = {event.frame: event for event in trace.events() if (event.stage, event.kind) == ("cluster", "run")}
    assert all(spans[event.frame].start <= event.start <= event.end <= spans[event.frame].end for event in events)


@pytest.mark.parametrize("retry", [0, 1])
def test_a_killed_replica_costs_its_own_frames_only(cluster: Any, retry: int) -> None:
    with load(bundle(seconds=5e-3), replicas=2, retry=retry) as running:
        until(lambda: all_ready(running, 2))
        first = [running.submit(frame(number)) for number in range(20)]
        first[0].result(LIMIT)
        victim = running.replicas[0]
        os.kill(victim.process, signal.SIGKILL)
        errors = [future.exception(LIMIT) for future in first]
        failures = [error for error in errors if error is not None]
        # Four it may have had; none if they were sent once more.
        assert len(failures) <= (0 if retry else 4)
        assert all(isinstance(error, StageError) and isinstance(error.__cause__, DeviceLost) for error in failures)
        assert stream(running, 50)[1] <= (0 if retry else 4)
        # Ray starts it again, and it takes frames like the other one.
        until(lambda: all_ready(running, 2))
        assert running.replicas[0].process != victim.process
        before = running.replicas[0].frames
        assert stream(running, 50) == (50, 0)
        assert running.replicas[0].frames > before
        balance(running)


@pytest.mark.slow
def test_a_replica_that_hangs_is_lost_and_replaced(cluster: Any) -> None:
    with load(bundle(seconds=5e-3), replicas=2, retry=1, timeout=0.5) as running:
        until(lambda: all_ready(running, 2))
        victim = running.replicas[1].process
        os.kill(victim, signal.SIGSTOP)
        assert stream(running, 30) == (30, 0)
        until(lambda: all_ready(running, 2))
        assert running.replicas[1].process != victim
        balance(running)


def test_the_number_of_replicas_changes_while_frames_go_on(cluster: Any) -> None:
    with load(bundle(seconds=2e-3), replicas=1) as running:
        assert stream(running, 30) == (30, 0)
        futures = [running.submit(frame(number)) for number in range(2)]
        running.scale(3)
        assert [future.exception(LIMIT) for future in futures] == [None, None]
        until(lambda: all_ready(running, 3))
        assert stream(running, 100) == (100, 0)
        assert all(each.frames for each in running.replicas)
        futures = [running.submit(frame(number)) for number in range(4)]
        running.scale(1)
        assert [future.exception(LIMIT) for future in futures] == [None] * 4
        assert len(running.replicas) == 1
        assert stream(running, 30) == (30, 0)
        assert running.statistics().failed == 0
        balance(running)
        with pytest.raises(ArgumentError, match="replicas is 0"):
            running.scale(0)


def test_replicas_follow_the_nodes(cluster: Any) -> None:
    # As many as a resource allows that only some nodes have.
    with load(bundle(), resources={"first": 5.0}) as running:
        until(lambda: all_ready(running, 2))
        node = cluster.add_node(num_cpus=2, resources={"first": 5})
        try:
            until(lambda: all_ready(running, 3))
            assert stream(running, 30) == (30, 0)
        finally:
            cluster.remove_node(node)
        until(lambda: all_ready(running, 2))
        assert sum(stream(running, 30)) == 30
        balance(running)


def test_live_frames_are_dropped_here(cluster: Any) -> None:
    with load(bundle(seconds=0.05), replicas=1, admission="latest") as running:
        futures = [running.submit(frame(number)) for number in range(40)]
        running.drain(timeout=LIMIT)
        books = running.statistics()
        assert books.dropped["replaced"] > 0
        assert books.submitted == 40 == books.delivered + sum(books.dropped.values())
        assert futures[-1].exception(LIMIT) is None


def test_what_a_cluster_cannot_do_is_said(cluster: Any) -> None:
    with load(bundle(), replicas=1) as running:
        with pytest.raises(ArgumentError, match="cannot be swapped on a cluster"):
            running.swap(bundle())
        with pytest.raises(ArgumentError, match="parameters cannot be set"):
            running.set_params("stage0", {})
