"""Frames of several sizes through one pipeline: which build takes them, and what happens to those that have none."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.core.shapes import Build, OpenShapes, Size
from pipeline.errors import BuildError, FrameDropped, InputError, PipelineClosed
from pipeline.executor.bundle import Bundle
from pipeline.scheduler import Pipeline
from tests.scheduler.conftest import LIMIT

SHAPES = OpenShapes({"x": ("N", 2)})
PADDED = OpenShapes({"x": ("N", 2)}, {"b": (("N", 1), None)})


def resize_plan(plan: Plan, rows: int) -> Plan:
    """Return a plan with other extents."""

    def specs(original_specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        return tuple(TensorSpec(each.name, (rows, 2)) for each in original_specs)

    def stage(original_stage: StagePlan) -> StagePlan:
        return dataclasses.replace(
            original_stage, inputs=specs(original_stage.inputs), outputs=specs(original_stage.outputs)
        )

    stages = tuple(map(stage, plan.stages))
    return dataclasses.replace(plan, inputs=specs(plan.inputs), outputs=specs(plan.outputs), stages=stages)


class AddRows:
    """A stage with parameters, none of which anybody knows."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.parameters: dict[str, np.ndarray] = {}

    def __call__(self, x: np.ndarray) -> list[np.ndarray]:
        return [x + self.rows]

    def with_parameters(self, _: Any) -> AddRows:
        return self


def build(plan: Plan, rows: int, *, symbolic: bool = False) -> Build:
    """Return a build of two stages: the first one adds its number of rows, the second one 1000."""
    return Build(resize_plan(plan, rows), (AddRows(rows), lambda a: [a + 1000]), symbolic)


def frame(rows: int, value: float = 0.0) -> np.ndarray:
    return np.full((rows, 2), value, np.float32)


@pytest.fixture
def start(chain: Callable[..., Plan], functions: Any) -> Callable[..., Pipeline]:
    """Starts a pipeline with builds of some sizes."""

    def begin_s(*rows: int, shapes: OpenShapes = SHAPES, symbolic: int = 0, **options: Any) -> Pipeline:
        plan = chain(2)
        first, *other_builds = [build(plan, each) for each in rows]
        if symbolic:
            other_builds.append(build(plan, symbolic, symbolic=True))
        return Pipeline(first.plan, first.codes, create=functions, shapes=shapes, more=other_builds, **options)

    return begin_s


class Builder:
    """Makes builds when it is told to."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.made, self.open = plan, [], threading.Event()  # type: ignore[var-annotated]
        self.error: Exception | None = None

    def __call__(self, size: Size) -> Build:
        assert self.open.wait(LIMIT)
        self.made.append(dict(size))
        if self.error is not None:
            raise self.error
        return build(self.plan, size["N"])


@pytest.fixture
def builder(chain: Callable[..., Plan]) -> Iterator[Builder]:
    product = Builder(chain(2))
    yield product
    product.open.set()


def test_each_frame_meets_the_build_for_its_size(start: Callable[..., Pipeline]) -> None:
    with start(4, 2, 8) as running:
        results = list(running.map(frame(rows) for rows in (2, 4, 8, 4, 2)))
    assert [(each.shape, each[0, 0]) for each in results] == [
        ((2, 2), 1002), ((4, 2), 1004), ((8, 2), 1008), ((4, 2), 1004), ((2, 2), 1002),
    ]  # fmt: skip


def test_an_unknown_size_is_refused_with_those_that_are_known(start: Callable[..., Pipeline]) -> None:
    with start(4, 2) as running:
        with pytest.raises(InputError, match="no build for N=3: there are builds for N=4; N=2; give frames of these"):
            running.submit(frame(3))
        with pytest.raises(InputError, match=r"wrong shape for the input 'x': \[4, 3\] given, \[N, 2\] expected"):
            running.submit(np.zeros((4, 3), np.float32))
        with pytest.raises(InputError, match=r"wrong dtype for the input 'x': float64\[4, 2\] given"):
            running.submit(np.zeros((4, 2)))
        assert running.statistics().submitted == 0


def test_the_most_specific_build_is_taken(start: Callable[..., Pipeline]) -> None:
    with start(4, 2, symbolic=7) as running:
        assert [each[0, 0] for each in running.map(frame(rows) for rows in (2, 3, 4, 9))] == [1002, 1007, 1004, 1007]


def test_frames_are_padded_to_the_smallest_size_that_is_large_enough(start: Callable[..., Pipeline]) -> None:
    with start(8, 4, shapes=PADDED) as running:
        results = list(running.map(frame(rows, 1) for rows in (1, 4, 5, 8)))
        assert [(each.shape[0], each[0, 0]) for each in results] == [(1, 1005), (4, 1005), (5, 1009), (8, 1009)]
        with pytest.raises(InputError, match="no build for N=9"):
            running.submit(frame(9))
        with pytest.raises(InputError, match="no build for N=0"):
            running.submit(frame(0))


def test_the_original_calls_take_all_sizes(start: Callable[..., Pipeline]) -> None:
    with start(4, 2) as running:
        for rows in (2, 4):
            running.set_input("x", frame(rows))
            running.run()
        assert [running.get_output(timeout=LIMIT)[0].shape for _ in range(2)] == [(2, 2), (4, 2)]
        with pytest.raises(InputError, match="wrong shape"):
            running.set_input("x", np.zeros((4, 3), np.float32))


def test_a_new_size_is_built_once_while_others_go_on(start: Callable[..., Pipeline], builder: Builder) -> None:
    with start(4, build=builder) as running:
        new_futures = [running.submit(frame(3), metadata=number) for number in range(4)]
        assert all(each.shape == (4, 2) for each in running.map(frame(4) for _ in range(20)))
        assert not any(future.done() for future in new_futures)
        builder.open.set()
        assert [(future.result(LIMIT)[0, 0], future.metadata) for future in new_futures] == [
            (1003, each) for each in range(4)
        ]
        assert running.submit(frame(3)).result(LIMIT)[0, 0] == 1003
        assert builder.made == [{"N": 3}]
        running.drain(timeout=LIMIT)
        statistics = running.statistics()
    assert (statistics.submitted, statistics.delivered) == (25, 25)


def test_frames_of_several_new_sizes_come_out_in_the_order_of_map(
    start: Callable[..., Pipeline], builder: Builder
) -> None:
    builder.open.set()
    sizes = [4, 3, 4, 5, 3, 6, 4, 5]
    with start(4, build=builder) as running:
        assert [each.shape[0] for each in running.map(frame(rows) for rows in sizes)] == sizes
    assert sorted(each["N"] for each in builder.made) == [3, 5, 6]


def test_a_size_that_cannot_be_built_fails_its_frames_only(start: Callable[..., Pipeline], builder: Builder) -> None:
    builder.error = ValueError("no such luck")
    with start(4, build=builder) as running:
        future = running.submit(frame(3))
        builder.open.set()
        with pytest.raises(
            BuildError, match="no build for N=3 could be made: ValueError: no such luck"
        ) as failed_frames:
            future.result(LIMIT)
        assert failed_frames.value.__cause__ is builder.error
        with pytest.raises(InputError, match="no build for N=3") as refusals:
            running.submit(frame(3))
        assert refusals.value.__cause__ is builder.error
        assert running.submit(frame(4)).result(LIMIT).shape == (4, 2)


def test_frames_that_wait_for_a_build_are_bounded(start: Callable[..., Pipeline], builder: Builder) -> None:
    with start(4, build=builder) as running:
        limit = running.plan.frames_in_flight
        futures = [running.submit(frame(3)) for _ in range(limit)]
        with pytest.raises(TimeoutError):
            running.submit(frame(3), timeout=0.01)
        builder.open.set()
        assert len([future.result(LIMIT) for future in futures]) == limit


def test_a_policy_that_drops_does_not_wait_for_a_build(start: Callable[..., Pipeline], builder: Builder) -> None:
    with start(4, build=builder, admission="latest") as running:
        futures = [running.submit(frame(3)) for _ in range(running.plan.frames_in_flight + 1)]
        with pytest.raises(FrameDropped, match="full"):
            futures[0].result(LIMIT)
        builder.open.set()
        assert futures[-1].result(LIMIT).shape == (3, 2)


def test_a_frame_that_waits_for_a_build_can_be_cancelled(start: Callable[..., Pipeline], builder: Builder) -> None:
    with start(4, build=builder) as running:
        first, second = running.submit(frame(3)), running.submit(frame(3))
        assert first.cancel()
        builder.open.set()
        assert second.result(LIMIT).shape == (3, 2)
        with pytest.raises(CancelledError):
            first.result(LIMIT)
        statistics = running.statistics()
        assert (statistics.submitted, statistics.delivered, statistics.cancelled) == (2, 1, 1)


def test_closing_finishes_what_waits_for_a_build(start: Callable[..., Pipeline], builder: Builder) -> None:
    with start(4, build=builder) as running:
        future = running.submit(frame(3))
        threading.Timer(0.05, builder.open.set).start()
    assert future.result(0).shape == (3, 2)


def test_closing_without_draining_cancels_what_waits_for_a_build(
    start: Callable[..., Pipeline], builder: Builder
) -> None:
    running = start(4, build=builder)
    future = running.submit(frame(3))
    running.close(drain=False)
    with pytest.raises(CancelledError):
        future.result(LIMIT)
    with pytest.raises(PipelineClosed):
        running.submit(frame(3))


@pytest.mark.parametrize("change", ["swap", "set_params"])
def test_another_bundle_or_other_parameters_end_the_making_of_builds(
    start: Callable[..., Pipeline], builder: Builder, change: str
) -> None:
    """A build that is made from the former model must not join the stages of another one."""
    with start(4, build=builder) as running:
        future = running.submit(frame(3))
        if change == "swap":
            plan = running.plan
            running.swap(Bundle(plan, [lambda x: [x], lambda x: [x]], shapes=SHAPES))
        else:
            running.set_params("a", {})
        builder.open.set()
        with pytest.raises(InputError, match="another bundle by now"):
            future.result(LIMIT)
        with pytest.raises(InputError, match="no build for N=5"):
            running.submit(frame(5))


def test_a_swapped_bundle_may_have_other_sizes(start: Callable[..., Pipeline]) -> None:
    with start(4, 2) as running:
        plan = running.plan
        running.swap(Bundle(plan, build(plan, 4).codes, shapes=SHAPES, more=[build(plan, 6)]))
        assert running.submit(frame(6)).result(LIMIT)[0, 0] == 1006
        with pytest.raises(InputError, match="there are builds for N=4; N=6"):
            running.submit(frame(2))


def test_a_coroutine_may_bring_a_new_size(start: Callable[..., Pipeline], builder: Builder) -> None:
    builder.open.set()

    async def use(running: Pipeline) -> list[tuple[int, ...]]:
        return [result.shape async for result in running.amap([frame(4), frame(3), frame(4)])]

    with start(4, build=builder) as running:
        assert asyncio.run(use(running)) == [(4, 2), (3, 2), (4, 2)]


def test_drain_waits_for_what_waits_for_a_build(start: Callable[..., Pipeline], builder: Builder) -> None:
    with start(4, build=builder) as running:
        future = running.submit(frame(3))
        with pytest.raises(TimeoutError, match="1 frames were not finished"):
            running.drain(timeout=0.01)
        builder.open.set()
        running.drain(timeout=LIMIT)
        assert future.done()


def test_what_waits_for_a_build_is_in_the_books(start: Callable[..., Pipeline], builder: Builder) -> None:
    with start(4, build=builder) as running:
        futures = [running.submit(frame(3)) for _ in range(3)]
        assert [future.sequence for future in futures] == [0, 1, 2]
        statistics = running.statistics()
        assert (statistics.submitted, statistics.in_flight, statistics.waiting) == (3, 3, 3)
        assert running.submit(frame(4)).result(LIMIT).shape == (4, 2)
        assert futures[1].cancel()
        assert running.statistics().cancelled == 1
        builder.open.set()
        running.drain(timeout=LIMIT)
        statistics = running.statistics()
        assert (statistics.submitted, statistics.delivered, statistics.cancelled) == (4, 3, 1)


def test_flush_drops_what_waits_for_a_build(start: Callable[..., Pipeline], builder: Builder) -> None:
    with start(4, build=builder) as running:
        futures = [running.submit(frame(3)) for _ in range(3)]
        assert running.flush() == 3
        for future in futures:
            with pytest.raises(FrameDropped, match="flushed"):
                future.result(0)
        assert running.statistics().dropped == {"flushed": 3}
        builder.open.set()
        assert running.submit(frame(3)).result(LIMIT).shape == (3, 2)


def test_frames_that_are_dropped_while_they_wait_for_a_build_are_counted(
    start: Callable[..., Pipeline], builder: Builder
) -> None:
    with start(4, build=builder, admission="drop-oldest") as running:
        limit = running.plan.frames_in_flight
        futures = [running.submit(frame(3)) for _ in range(limit + 2)]
        assert running.statistics().dropped == {"full": 2}
        assert [future.done() for future in futures] == [True, True, *[False] * limit]
        builder.open.set()
        running.drain(timeout=LIMIT)
    statistics = running.statistics()
    assert statistics.submitted == limit + 2 == statistics.delivered + sum(statistics.dropped.values())


def test_a_failed_build_is_told_even_if_its_own_text_cannot_be_had(
    start: Callable[..., Pipeline], builder: Builder
) -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    builder.error = Unreadable()
    with start(4, build=builder) as running:
        future = running.submit(frame(3))
        builder.open.set()
        with pytest.raises(BuildError, match=r"no build for N=3 could be made: Unreadable: \(its text cannot be read"):
            future.result(LIMIT)
        with pytest.raises(InputError, match="no build for N=3"):
            running.submit(frame(3))
        assert running.submit(frame(4)).result(LIMIT).shape == (4, 2)


def test_a_failed_build_is_counted(start: Callable[..., Pipeline], builder: Builder) -> None:
    builder.error = ZeroDivisionError("division by zero")
    with start(4, build=builder) as running:
        futures = [running.submit(frame(3)) for _ in range(2)]
        builder.open.set()
        for future in futures:
            with pytest.raises(BuildError, match="no build for N=3 could be made: ZeroDivisionError: division by zero"):
                future.result(LIMIT)
        assert running.statistics().failed == 2


def test_a_cancelled_newcomer_makes_room_for_another(start: Callable[..., Pipeline], builder: Builder) -> None:
    with start(4, build=builder) as running:
        futures = [running.submit(frame(3)) for _ in range(running.plan.frames_in_flight)]
        threading.Timer(0.05, futures[0].cancel).start()
        assert running.submit(frame(3), timeout=LIMIT).sequence == len(futures)
        builder.open.set()


def test_close_gives_up_what_waits_for_a_build_in_time(start: Callable[..., Pipeline], builder: Builder) -> None:
    running = start(4, build=builder)
    future = running.submit(frame(3))
    running.close(timeout=0.01)
    assert future.cancelled()
    assert running.statistics().cancelled == 1


def test_a_failed_frame_that_stops_the_pipeline_cancels_what_waits_for_a_build(
    start: Callable[..., Pipeline], builder: Builder, functions: Any, chain: Callable[..., Plan]
) -> None:
    def fail(_: np.ndarray) -> Any:
        raise RuntimeError("no luck")

    plan = resize_plan(chain(2), 4)
    with Pipeline(plan, [fail, fail], create=functions, shapes=SHAPES, build=builder, on_error="stop") as running:
        future = running.submit(frame(3))
        assert running.submit(frame(4)).exception(LIMIT) is not None
        with pytest.raises(CancelledError):
            future.result(LIMIT)
