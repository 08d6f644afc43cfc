"""Processes that are forked while pipelines are open."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.errors import PipelineClosed
from pipeline.executor.bundle import Bundle
from pipeline.scheduler import Pipeline
from tests.support.forked import PYTHON_WARNS, X, in_child, plan
from tests.support.onnx_models import node, save

LIMIT = 60.0
pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings(PYTHON_WARNS)]
BELONGS = r"has stopped: it belongs to process \d+, from which this one was forked; load it after the fork"


@pytest.fixture
def running() -> Iterator[Pipeline]:
    with Pipeline(plan(), stage_timeout=30.0) as open_pipeline:
        yield open_pipeline
        # In the parent, all goes on.
        np.testing.assert_array_equal(open_pipeline.submit(X).result(LIMIT), X)


def expect_closed(work: Callable[[], object]) -> Callable[[], None]:
    def check() -> None:
        with pytest.raises(PipelineClosed, match=BELONGS):
            work()

    return check


@pytest.mark.parametrize(
    "call",
    [
        lambda running: running.submit(X),
        lambda running: list(running.map([X])),
        lambda running: running.swap(Bundle(plan(), [None, None])),
        lambda running: (running.set_input("x", X), running.run()),
    ],
    ids=["submit", "map", "swap", "run"],
)
def test_calls_in_the_child_say_whose_the_pipeline_is(running: Pipeline, call: Callable[[Pipeline], object]) -> None:
    assert in_child(expect_closed(lambda: call(running))) == ""


def test_outputs_of_runs_are_the_parents(running: Pipeline) -> None:
    running.set_input("x", X)
    running.run()

    def work() -> None:
        with pytest.raises(PipelineClosed, match=BELONGS):
            running.get_output()
        with pytest.raises(PipelineClosed, match="the pipeline is closed and all outputs have been read"):
            running.get_output()

    assert in_child(work) == ""
    assert (running.get_output(timeout=LIMIT)[0] == X).all()


def test_close_and_all_that_waits_return_at_once_in_the_child(running: Pipeline) -> None:
    def work() -> None:
        running.drain()
        assert running.flush() == 0
        running.pause()
        running.resume()
        statistics = running.statistics()
        assert statistics.in_flight == 0
        running.close()
        running.close(drain=False)
        assert running.closed

    futures = [running.submit(X) for _ in range(3)]
    assert in_child(work) == ""
    assert all((future.result(LIMIT) == X).all() for future in futures)


def test_frames_that_are_in_fail_in_the_child_and_call_nobody_back(running: Pipeline) -> None:
    calling_processes: list[int] = []
    futures = [running.submit(X) for _ in range(3)]
    for future in futures:
        future.add_done_callback(lambda _: calling_processes.append(os.getpid()))

    def work() -> None:
        for future in futures:
            if not future.done():
                with pytest.raises(PipelineClosed, match=BELONGS):
                    future.result(LIMIT)
        assert os.getpid() not in calling_processes

    assert in_child(work) == ""
    running.drain(timeout=LIMIT)
    assert calling_processes == [os.getpid()] * 3


def test_a_map_that_was_begun_ends_in_the_child(running: Pipeline) -> None:
    results = running.map(X for _ in range(20))
    next(results)
    assert in_child(expect_closed(lambda: list(results))) == ""
    assert len(list(results)) == 19


def test_frames_that_wait_at_the_entrance_fail_in_the_child_too() -> None:
    with Pipeline(plan(), admission="drop-oldest", waiting=5) as running:
        running.pause()
        futures = [running.submit(X) for _ in range(3)]
        assert in_child(expect_closed(lambda: futures[2].result(LIMIT))) == ""
        running.resume()
        assert (futures[2].result(LIMIT) == X).all()


def test_frames_that_are_being_dropped_end_in_the_child_too() -> None:
    """They had left the line, and the first one's callback forked before the others had ended: they never did."""
    with Pipeline(plan(), admission="deadline", deadline=0.01, waiting=3) as running:
        running.pause()
        captured = time.time() + 0.5
        futures = [running.submit(X, timestamp=captured) for _ in range(3)]

        def work() -> None:
            assert all(future.done() for future in futures)
            assert running.statistics().in_flight == 0

        child_errors: list[str] = []
        futures[0].add_done_callback(lambda _: child_errors.append(in_child(work)))
        while time.time() < captured + 0.02:
            time.sleep(0.01)
        running.resume()
        assert child_errors == [""]


def test_a_fork_in_the_midst_of_traffic(running: Pipeline) -> None:
    """Whatever lock another thread holds at that moment."""
    for _ in range(20):
        futures = [running.submit(X, timeout=LIMIT) for _ in range(2)]
        assert in_child(running.close) == ""
        assert all((future.result(LIMIT) == X).all() for future in futures)


def test_a_pipeline_that_was_closed_before_is_just_closed() -> None:
    running = Pipeline(plan())
    running.close()

    def work() -> None:
        with pytest.raises(PipelineClosed, match="the pipeline is closed; it takes no more frames"):
            running.submit(X)
        running.close()

    assert in_child(work) == ""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    nodes = [node("MatMul", "x w", "y")]
    path = save(tmp_path_factory.mktemp("model") / "m.onnx", nodes, {"x": X.shape}, ["y"], {"w": X})
    graph = pipeline.read(path)
    return pipeline.build(graph, pipeline.plan(graph, Board("one", (Device("cpu", cores=(0, 1)),)), stages=1))


def test_a_child_has_threads_and_pipelines_of_its_own(bundle: Bundle) -> None:
    """Threads that rest in the parent do not exist in the child."""
    with pipeline.load(bundle) as running:
        running.submit(X).result(LIMIT)

    def work() -> None:
        for _ in range(3):
            with pipeline.load(bundle) as child_pipeline:
                assert (child_pipeline.submit(X).result(LIMIT) == X @ X).all()

    assert in_child(work) == ""
    work()


def test_the_child_ends_without_a_warning(tmp_path: Path) -> None:
    script = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pipeline.scheduler import Pipeline
from tests.support.forked import X, plan
running = Pipeline(plan())
running.submit(X)
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    running.close()
"""
    command = [sys.executable, "-W", "always", "-W", "ignore::DeprecationWarning", "-c", script]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, cwd=tmp_path, check=False)
    assert (completed.returncode, completed.stderr) == (0, "")
