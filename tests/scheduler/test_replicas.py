"""Several workers for one stage."""

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, decode, encode
from pipeline.errors import PlanError
from pipeline.scheduler import Pipeline


def frame(number: int) -> np.ndarray:
    return np.full(4, number, np.float32)


def test_replicas_work_at_the_same_time(chain: Callable[..., Plan], functions: Any) -> None:
    """The replicas wait for each other: one after the other they would wait for ever."""
    meet = threading.Barrier(3)

    def together(x: np.ndarray) -> Sequence[np.ndarray]:
        meet.wait(30)
        return [x]

    with Pipeline(chain(1, replicas=3), [together], create=functions) as running:
        futures = [running.submit(frame(number)) for number in range(6)]
        assert [future.result(30)[0] for future in futures] == list(range(6))
        (stage,) = running.statistics().stages
    assert (stage.replicas, stage.frames_out) == (3, 6)


def test_outputs_stay_in_order_and_memory_bounded_behind_a_slow_frame(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    """Frame 0 is held; the others overtake it inside, wait for it at the exit, and are bounded."""

    def hold_first(x: np.ndarray) -> Sequence[np.ndarray]:
        return gate(x) if x[0] == 0 else [x]

    ends: list[int] = []
    plan = chain(2, replicas={"a": 4, "b": 1}, in_flight=8)
    with Pipeline(plan, [hold_first, lambda x: [x]], create=functions) as running:
        futures = [running.submit(frame(number)) for number in range(8)]
        for future in futures:
            future.add_done_callback(lambda future: ends.append(future.sequence))  # type: ignore[attr-defined]
        with pytest.raises(TimeoutError):
            running.submit(frame(8), timeout=0.05)
        assert not any(future.done() for future in futures)
        gate.open.set()
    assert ends == list(range(8))


def test_places_count_replicas(chain: Callable[..., Plan]) -> None:
    assert chain(2, replicas=3, queue_depth=2).frames_in_flight == 2 * (3 + 2)


def test_cores_are_shared_out() -> None:
    from pipeline.core.plan.plan import StagePlan

    stage = StagePlan("a", "d", (), (), cores=(4, 5, 6, 7), replicas=2)
    assert [stage.cores_of(replica) for replica in range(2)] == [(4, 5), (6, 7)]
    assert StagePlan("a", "d", (), (), replicas=2).cores_of(1) == ()


def test_each_replica_opens_its_own_cores_and_device(graph: Callable[..., Plan], functions: Any) -> None:
    openings: list[tuple[str, Sequence[int]]] = []

    def create(device: Device) -> Any:
        runtime = functions(device)
        full_result = runtime.open

        def note(cores: Sequence[int]) -> None:
            openings.append((device.name, tuple(cores)))
            full_result(cores)

        runtime.open = note
        return runtime

    plan = graph({"a": ["x"]}, outputs=["a"], replicas=2, cores=(0, 1))
    spread = dataclasses.replace(
        plan,
        board=Board("two", (*plan.board.devices, Device("e", "null", memory="far"))),
        stages=(dataclasses.replace(plan.stages[0], replica_devices=("d", "e")),),
    )
    with Pipeline(spread, [lambda x: [x + 1]], create=create) as running:
        for result, number in zip(running.map(frame(number) for number in range(20)), range(20), strict=True):
            np.testing.assert_array_equal(result, frame(number + 1))
    assert openings == [("d", (0,)), ("e", (1,))]


def test_replicas_on_devices_with_memories_of_their_own_meet_in_arrays(
    graph: Callable[..., Plan], functions: Any, two_memories: Mapping[str, Device]
) -> None:
    """The tensors' own checks tell if one reaches a device that it is not on."""
    near_memory = two_memories["near"]
    plan = graph({"a": ["x"], "b": ["a"], "c": ["b", "a"]}, outputs=["c"], devices=dict.fromkeys("abc", near_memory))
    stages = list(plan.stages)
    stages[1] = dataclasses.replace(stages[1], replicas=2, replica_devices=("near", "far"))
    board = Board("test", tuple(two_memories.values()))
    spread = dataclasses.replace(plan, board=board, stages=tuple(stages))
    codes = [lambda x: [x + 1], lambda a: [a * 2], lambda b, a: [b - a]]
    with Pipeline(spread, codes, create=functions) as running:
        for number, result in enumerate(running.map(frame(number) for number in range(40))):
            np.testing.assert_array_equal(result, frame(number + 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": 0}, "stage 'a': replicas is 0; it must be at least 1"),
        ({"replicas": 2, "cores": (0, 1, 2)}, "3 cores cannot be shared out to 2 replicas"),
        ({"replicas": 2, "replica_devices": ("d",)}, "1 devices for 2 replicas"),
    ],
)
def test_impossible_replicas_are_refused(chain: Callable[..., Plan], options: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        chain(1, **options)


def test_replicas_are_of_one_kind(chain: Callable[..., Plan]) -> None:
    plan = chain(1)
    board = Board("two", (*plan.board.devices, Device("e", "simulated")))
    stage = dataclasses.replace(plan.stages[0], replicas=2, replica_devices=("d", "e"))
    with pytest.raises(PlanError, match="its replica on 'e' is of kind 'simulated', not 'null'"):
        dataclasses.replace(plan, board=board, stages=(stage,))


def test_replicas_are_in_the_plan_s_json(chain: Callable[..., Plan]) -> None:
    plan = chain(2, replicas=2, cores=(0, 1))
    assert decode(encode(plan), "test") == plan
