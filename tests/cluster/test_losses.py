"""A long stream, whose replicas and nodes are killed: the books balance, the order holds, and the stream goes on."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import partial
from typing import Any

import numpy as np
import pytest

from pipeline.cluster import ClusterPipeline, load
from pipeline.errors import DeviceLost, StageError
from tests.cluster.conftest import LIMIT, all_ready, bundle, frame, until

FRAMES = 20_000
MOST_LOST = 40
"""Five replicas are lost, some of them twice, with two frames each."""


@pytest.mark.slow
def test_a_stream_outlives_a_replica_a_node_and_half_of_all_replicas(cluster: Any) -> None:
    nodes = [cluster.add_node(num_cpus=4, resources={"soak": 4}) for _ in range(2)]
    try:
        with load(bundle(seconds=1e-3, stages=1), replicas=4, resources={"soak": 1}) as running:
            until(lambda: all_ready(running, 4))
            kills = {
                4_000: partial(kill, running, 1),
                8_000: partial(kill_raylet, nodes[1]),
                14_000: partial(kill, running, 2),
            }
            ends, failures = stream(running, kills)
            until(lambda: all_ready(running, 4))
            books = running.statistics()
            last = running.submit(frame(1)).result(LIMIT)
    finally:
        for node in nodes:
            # The one whose raylet is dead cannot be asked to end.
            with contextlib.suppress(Exception):
                cluster.remove_node(node, allow_graceful=False)
    np.testing.assert_array_equal(last, frame(1))
    assert ends == list(range(FRAMES))
    assert (books.submitted, books.in_flight) == (FRAMES, 0)
    assert books.delivered + books.failed == FRAMES
    assert books.failed == len(failures) <= MOST_LOST
    assert all(isinstance(error, StageError) and isinstance(error.__cause__, DeviceLost) for error in failures)


def stream(running: ClusterPipeline, kills: dict[int, Any]) -> tuple[list[int], list[BaseException]]:
    """Submit the frames, with what happens in between, and return in which order they ended, and the errors."""
    ends: list[int] = []
    futures = []
    for number in range(FRAMES):
        if number in kills:
            kills[number]()
        future = running.submit(frame(number), timeout=LIMIT)
        future.add_done_callback(partial(note_end, ends, number))
        futures.append(future)
    errors = [future.exception(LIMIT) for future in futures]
    for number, (future, error) in enumerate(zip(futures, errors, strict=True)):
        if error is None:
            np.testing.assert_array_equal(future.result(), frame(number))
    running.drain(timeout=LIMIT)
    return ends, [error for error in errors if error is not None]


def note_end(ends: list[int], number: int, _: object) -> None:
    ends.append(number)


def kill(running: ClusterPipeline, count: int) -> None:
    for replica in running.replicas[:count]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(replica.process, signal.SIGKILL)


def kill_raylet(node: Any) -> None:
    os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGKILL)
