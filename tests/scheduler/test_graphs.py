"""Order, joins, memories and places."""

import dataclasses
import functools
import random
import threading
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import Plan, TensorSpec
from pipeline.scheduler import Pipeline

X = np.arange(4, dtype=np.float32)


def frame(number: int) -> np.ndarray:
    return np.full(4, number, np.float32)


def test_five_frames_before_any_is_read_come_back_in_order(chain: Callable[..., Plan], functions: Any) -> None:
    with Pipeline(chain(3), [lambda x: [x + 1], lambda x: [x * 3], lambda x: [x - 2]], create=functions) as running:
        futures = [running.submit(frame(number)) for number in range(5)]
        for number, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(30), (frame(number) + 1) * 3 - 2)
            assert future.sequence == number


def test_futures_end_in_the_order_of_submission(graph: Callable[..., Plan]) -> None:
    ends: list[int] = []
    plan = graph({"a": ["x"], "b": ["a"], "c": ["a"], "d": ["x"], "e": ["b", "d"]}, outputs=["c", "e"])
    with Pipeline(plan) as running:
        for _ in range(500):
            running.submit(X, copy=False).add_done_callback(lambda future: ends.append(future.sequence))  # type: ignore[attr-defined]
    assert ends == list(range(500))


def test_branches_work_on_one_frame_at_the_same_time(graph: Callable[..., Plan], functions: Any) -> None:
    """A branch waits for the other: one after the other they would wait for ever."""
    meet = threading.Barrier(2)

    def branch(x: np.ndarray) -> Sequence[np.ndarray]:
        meet.wait(30)
        return [x + 1]

    plan = graph({"a": ["x"], "b": ["a"], "c": ["a"], "d": ["b", "c"]}, outputs=["d"], in_flight=1)
    with Pipeline(plan, [lambda x: [x], branch, branch, lambda b, c: [b + c]], create=functions) as running:
        np.testing.assert_array_equal(running.submit(X).result(30), 2 * (X + 1))


def test_faults_1_and_9_any_input_of_any_stage_and_one_output_twice(graph: Callable[..., Plan], functions: Any) -> None:
    """The predecessor's own test (three stages, a skip edge, a model input into the second stage) and fan-out."""
    plan = graph(
        {"a": ["x"], "b": ["y", "a0"], "c": ["a0", "b", "a1", "x"]},
        inputs=["x", "y"],
        makes={"a": ["a0", "a1"]},
        outputs=["c", "a1"],
    )
    codes = [lambda x: [x + 1, x + 2], lambda y, a: [y * a], lambda a0, b, a1, x: [a0 + b + a1 + x]]
    with Pipeline(plan, codes, create=functions) as running:
        for number in range(20):
            x, y = frame(number), frame(number + 7)
            result = running.submit({"x": x, "y": y}).result(30)
            np.testing.assert_array_equal(result["c"], (x + 1) + y * (x + 1) + (x + 2) + x)
            np.testing.assert_array_equal(result["a1"], x + 2)


def test_copies_happen_only_between_memories_and_once_for_each(
    graph: Callable[..., Plan], functions: Any, two_memories: Mapping[str, Device]
) -> None:
    near_memory, far_memory = two_memories["near"], two_memories["far"]
    plan = graph(
        {"a": ["x"], "b": ["a"], "c": ["b", "x"], "d": ["b"], "e": ["c", "d", "a"]},
        outputs=["e"],
        devices={"a": near_memory, "b": near_memory, "c": far_memory, "d": far_memory, "e": near_memory},
    )
    codes = [lambda x: [x + 1], lambda a: [a * 2], lambda b, x: [b - x], lambda b: [b * b], lambda c, d, a: [c + d + a]]
    with Pipeline(plan, codes, create=functions) as running:
        result = running.submit(X).result(30)
    b = (X + 1) * 2
    np.testing.assert_array_equal(result, (b - X) + b * b + X + 1)
    copies = [entry for entry in functions.log if entry[0] in {"in", "out"}]
    reference = [("in", "near"), ("out", "near"), ("in", "far"), ("in", "far"), ("out", "far"), ("out", "far")]
    assert sorted(copies) == sorted([*reference, ("in", "near"), ("in", "near"), ("out", "near")])


def test_a_stage_that_returns_too_little_fails_the_frame(graph: Callable[..., Plan], functions: Any) -> None:
    plan = graph({"a": ["x"]}, makes={"a": ["a", "b"]}, outputs=["a", "b"])
    with Pipeline(plan, [lambda x: [x]], create=functions) as running:
        error = running.submit(X).exception(30)
    assert "the stage returned 1 outputs; its plan says 2" in str(error)


def test_a_hop_copies_nothing(graph: Callable[..., Plan]) -> None:
    """The predecessor copied each tensor three times per hop: 7 ms at 3 MB."""
    plan = graph(
        {"a": ["x"], "b": ["a"], "c": ["b", "a"], "d": ["c"]},
        inputs=["x", "y"],
        outputs=["y"],
        shape=(25_000_000,),
    )
    array = np.zeros(25_000_000, np.float32)
    plan = dataclasses.replace(plan, inputs=(plan.inputs[0], TensorSpec("y", (1,))), outputs=(TensorSpec("y", (1,)),))
    with Pipeline(plan) as running:
        tracemalloc.start()
        try:
            for _ in range(10):
                running.submit({"x": array, "y": X[:1]}, copy=False).result(30)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 1e6, "of frames of 100 MB"


@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_frames_in_flight_are_bounded(chain: Callable[..., Plan], functions: Any, gate: Any, in_flight: int) -> None:
    with Pipeline(chain(3, in_flight=in_flight, queue_depth=9), [gate] * 3, create=functions) as running:
        for _ in range(in_flight):
            running.submit(X, timeout=0)
        with pytest.raises(
            TimeoutError, match=f"none became free within 0.01 s; the pipeline 'test' takes {in_flight} "
        ):
            running.submit(X, timeout=0.01)
        assert running.statistics().in_flight == in_flight
        gate.open.set()


def test_a_full_channel_holds_back_the_stages_before_it(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    """Fault 4: data was dropped instead. Two stages, one place each: two frames at work and two waiting are all."""
    plan = chain(2, queue_depth=1, in_flight=100)
    with Pipeline(plan, [lambda x: [x], gate], create=functions) as running:
        futures = [running.submit(frame(0))]
        gate.wait_entered()
        with pytest.raises(TimeoutError):
            while True:
                futures.append(running.submit(frame(len(futures)), timeout=1))
        assert len(futures) == 4
        assert running.statistics().stages[1].queue_length <= 1
        gate.open.set()
        assert [future.result(30)[0] for future in futures] == [0, 1, 2, 3]


def test_stages_that_share_a_core_take_turns(graph: Callable[..., Plan], functions: Any) -> None:
    busy = threading.Lock()

    def alone(x: np.ndarray) -> Sequence[np.ndarray]:
        assert busy.acquire(blocking=False), "two stages ran on one core"
        try:
            threading.Event().wait(0.001)
            return [x]
        finally:
            busy.release()

    cores = {"a": (0, 1), "b": (1, 2), "c": (2, 1, 0)}
    # Devices of this kind compute on the host; null devices, which compute nothing, may share a core.
    plan = graph({"a": ["x"], "b": ["x"], "c": ["a", "b"]}, outputs=["c"], cores=cores, kind="test")
    with Pipeline(plan, [alone, alone, lambda a, b: alone(a)], create=functions) as running:
        for future in [running.submit(X) for _ in range(30)]:
            np.testing.assert_array_equal(future.result(30), X)


def mix(*arrays: np.ndarray, factor: int) -> Sequence[np.ndarray]:
    return [np.sum(arrays, axis=0) * factor % 1013]


def random_graph(seed: int) -> tuple[dict[str, list[str]], list[str]]:
    """Return stages with what they read, and the outputs."""
    choose = random.Random(seed)
    tensors, stages = ["x", "y"], {}
    for number in range(choose.randint(1, 7)):
        stages[f"s{number}"] = choose.sample(tensors, choose.randint(1, min(3, len(tensors))))
        tensors.append(f"s{number}")
    return stages, choose.sample(tensors, choose.randint(1, len(tensors)))


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_compute_what_one_stage_after_the_other_computes(
    graph: Callable[..., Plan], functions: Any, seed: int
) -> None:
    stages, outputs = random_graph(seed)
    choose = random.Random(-seed)
    devices = [Device(name, "test", memory=name) for name in ("m", "n")]
    plan = graph(
        stages,
        inputs=["x", "y"],
        outputs=outputs,
        devices={name: choose.choice(devices) for name in stages},
        queue_depth=choose.randint(1, 3),
        in_flight=choose.randint(0, 6),
    )
    codes = [functools.partial(mix, factor=number + 2) for number in range(len(stages))]
    with Pipeline(plan, codes, create=functions) as running:
        sent_frames = [{"x": frame(number), "y": frame(3 * number)} for number in range(12)]
        futures = [running.submit(inputs, copy=bool(choose.randint(0, 1))) for inputs in sent_frames]
        for inputs, future in zip(sent_frames, futures, strict=True):
            reference_values = dict(inputs)
            for code, (name, reads) in zip(codes, stages.items(), strict=True):
                (reference_values[name],) = code(*(reference_values[each] for each in reads))
            result = future.result(30)
            for name in outputs:
                np.testing.assert_array_equal(result[name] if len(outputs) > 1 else result, reference_values[name])
