"""Affinity of threads: those of stages on their cores, and what callbacks start anywhere."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor.bundle import Bundle
from pipeline.scheduler import Pipeline
from pipeline.system import affinity
from tests.support.onnx_models import node, save

LIMIT = 60.0
X = np.ones((4, 4), np.float32)
ALL = affinity.process_cores()
pytestmark = pytest.mark.skipif(not affinity.CAN_PIN or len(ALL) < 2, reason="there are no cores to choose from")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Two stages, each on a core of its own."""
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a w", "y")]
    path = save(tmp_path_factory.mktemp("model") / "m.onnx", nodes, {"x": X.shape}, ["y"], {"w": X})
    board = Board("two", tuple(Device(f"cpu{core}", "cpu", cores=(core,), memory="host") for core in ALL[:2]))
    graph = pipeline.read(path)
    return pipeline.build(graph, pipeline.plan(graph, board, cuts=["a"], devices=["cpu0", "cpu1"]))


def stage_affinities() -> list[set[int]]:
    threads = [each for each in threading.enumerate() if each.name.startswith("stage ")]
    return [os.sched_getaffinity(each.native_id or 0) for each in threads]


def in_callback(running: Pipeline, work: Callable[[], Any]) -> Any:
    """Return what `work` returns when it is called back by the pipeline, in the thread of its last stage."""
    outcome: Future[Any] = Future()

    def call(_: Future[Any]) -> None:
        assert threading.current_thread().name.startswith("stage ")
        outcome.set_result(work())

    # It must not end before it has got its callback; with this policy nobody waits at the entrance.
    running.pause()
    running.submit(X).add_done_callback(call)
    running.resume()
    return outcome.result(LIMIT)


def test_a_swap_from_a_callback_leaves_each_stage_on_its_core(bundle: Bundle) -> None:
    """New workers inherited the affinity of the last stage's: all stages of the new bundle shared its core."""
    with pipeline.load(bundle, admission="drop-oldest") as running:
        assert sorted(stage_affinities(), key=min) == [{ALL[0]}, {ALL[1]}]
        in_callback(running, lambda: running.swap(bundle))
        np.testing.assert_array_equal(running.submit(X).result(LIMIT), X @ X @ X)
        running.drain(timeout=LIMIT)
        assert {frozenset(each) for each in stage_affinities()} == {frozenset({ALL[0]}), frozenset({ALL[1]})}


def pinned_plan() -> Plan:
    x, y = TensorSpec("x", X.shape), TensorSpec("y", X.shape)
    board = Board("test", (Device("d", "simulated"),))
    stages = (StagePlan("a", "d", (x,), (y,), cores=ALL[:1], seconds=0.05),)
    return Plan("test", "", board, (x,), (y,), stages)


def test_what_a_callback_starts_may_use_all_cores() -> None:
    def start() -> set[int]:
        affinities: list[set[int]] = []
        thread = threading.Thread(target=lambda: affinities.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join(LIMIT)
        return affinities[0]

    with Pipeline(pinned_plan(), admission="drop-oldest") as running:
        assert in_callback(running, start) == set(ALL)
        assert stage_affinities() == [set(ALL[:1])], "the stage is on its core again"


def test_a_callback_that_fails_leaves_the_stage_on_its_core_too() -> None:
    callback_ran = threading.Event()

    def fail(_: Any) -> None:
        callback_ran.set()
        raise ValueError("mine")

    with Pipeline(pinned_plan()) as running:
        future = running.submit(X)
        future.add_done_callback(fail)
        running.submit(X).result(LIMIT)
        assert callback_ran.is_set()
        assert stage_affinities() == [set(ALL[:1])]


def test_workers_do_not_depend_on_where_the_calling_thread_may_run(bundle: Bundle) -> None:
    affinities: list[list[set[int]]] = []

    def load() -> None:
        affinity.pin(ALL[1:2])
        with pipeline.load(bundle):
            affinities.append(stage_affinities())
        affinities.append([os.sched_getaffinity(0)])

    thread = threading.Thread(target=load)
    thread.start()
    thread.join(LIMIT)
    assert sorted(affinities[0], key=min) == [{ALL[0]}, {ALL[1]}]
    assert affinities[1] == [{ALL[1]}], "the caller's own is left alone"


def test_the_process_may_use_what_its_main_thread_may() -> None:
    affinities: list[tuple[int, ...]] = []

    def ask() -> None:
        affinity.pin(ALL[:1])
        affinities.append(affinity.process_cores())
        affinity.unpin()
        affinities.append(tuple(sorted(os.sched_getaffinity(0))))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(LIMIT)
    assert affinities == [ALL, ALL]


def test_cores_that_do_not_exist_leave_the_thread_where_it_is() -> None:
    cores_at_first = os.sched_getaffinity(0)
    affinity.pin([1_000_000])
    affinity.pin([])
    assert os.sched_getaffinity(0) == cores_at_first


def test_no_other_part_of_the_package_asks_where_its_own_thread_may_run(root: Path) -> None:
    """A thread's own affinity is not the process's."""
    files = [file for room in ("pipeline", "boards") for file in (root / room).rglob("*.py")]
    users = {file.name for file in files if "sched_getaffinity" in file.read_text() and "test" not in file.name}
    assert users == {"affinity.py"}
