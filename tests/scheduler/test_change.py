"""New parameters and new bundles take effect at a frame boundary, in order."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.errors import InputError, PipelineClosed, PipelineError, PlanError
from pipeline.executor.bundle import Bundle
from pipeline.scheduler import Pipeline
from tests.scheduler.conftest import wait_until
from tests.support.alive import collect


def frame(number: int) -> np.ndarray:
    return np.full(4, number, np.float32)


class Scale:
    """A stage with parameters."""

    def __init__(self, parameters: Mapping[str, np.ndarray]) -> None:
        self.parameters = dict(parameters)

    def __call__(self, x: np.ndarray) -> Sequence[np.ndarray]:
        return [x * self.parameters["factor"]]

    def with_parameters(self, values: Mapping[str, np.ndarray]) -> Scale:
        return Scale({**self.parameters, **values})


def scale(factor: float) -> Scale:
    return Scale({"factor": np.full(1, factor, np.float32), "unused": np.zeros((2, 3), np.int32)})


def test_fault_16_parameters_change_between_frames(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    """Frames that were submitted before use the old ones in every stage, also those that no stage has seen yet."""
    with Pipeline(chain(3, queue_depth=3), [scale(2), scale(3), gate], create=functions) as running:
        original_futures = [running.submit(frame(number)) for number in range(4)]
        running.set_params("a", {"factor": np.full(1, 10, np.float32)})
        middle_frames = [running.submit(frame(number)) for number in range(2)]
        running.set_params("b", {"factor": [np.float32(100)]})
        new_futures = [running.submit(frame(number)) for number in range(2)]
        gate.open.set()
        assert [future.result(30)[0] for future in original_futures] == [0, 6, 12, 18]
        assert [future.result(30)[0] for future in middle_frames] == [0, 30]
        assert [future.result(30)[0] for future in new_futures] == [0, 1000]


def test_values_are_copied(chain: Callable[..., Plan], functions: Any) -> None:
    values = np.full(1, 5, np.float32)
    with Pipeline(chain(1), [scale(2)], create=functions) as running:
        running.set_params("a", {"factor": values})
        values[:] = -1
        assert running.submit(frame(1)).result(30)[0] == 5


@pytest.mark.parametrize(
    ("group", "values", "message"),
    [
        ("aa", {}, "no stage is called 'aa'; there are a; did you mean 'a'"),
        (
            "a",
            {"factr": np.zeros(1)},
            "stage 'a' has no parameter 'factr'; it has factor, unused; did you mean 'factor'",
        ),
        ("a", {"factor": np.zeros(1)}, r"'factor' of stage 'a': float64\[1\] given, float32\[1\] expected"),
        ("a", {"factor": np.zeros(2, np.float32)}, r"float32\[2\] given, float32\[1\] expected"),
    ],
)
def test_wrong_values_are_refused_and_leave_no_trace(
    chain: Callable[..., Plan], functions: Any, group: str, values: Any, message: str
) -> None:
    with Pipeline(chain(1), [scale(2)], create=functions) as running:
        openings = list(functions.log)
        with pytest.raises(InputError, match=message):
            running.set_params(group, {"unused": np.ones((2, 3), np.int32), **values})
        assert functions.log == openings
        assert running.submit(frame(1)).result(30)[0] == 2


def test_a_stage_without_parameters(chain: Callable[..., Plan]) -> None:
    with Pipeline(chain(1)) as running, pytest.raises(InputError, match="it has none"):
        running.set_params("a", {"factor": np.zeros(1)})


def bundle(plan: Plan, *codes: Any) -> Any:
    return Bundle(plan, codes)


def test_swap_to_other_stages_in_the_middle_of_a_stream(graph: Callable[..., Plan], functions: Any) -> None:
    """x -> a -> z becomes x -> (p, q) -> z; two submitters, and every frame meets one bundle only."""
    plan = graph({"a": ["x"], "b": ["a"]}, makes={"b": ["z"]}, outputs=["z"])
    two = graph({"p": ["x"], "q": ["x"], "r": ["p", "q"]}, makes={"r": ["z"]}, outputs=["z"], replicas=2)
    first = bundle(plan, lambda x: [x + 1], lambda x: [x + 1])
    second = bundle(two, lambda x: [x * 2], lambda x: [x * 3], lambda p, q: [p + q])
    with Pipeline(plan, first.codes, create=functions) as running:
        for round_ in range(6):
            futures = [running.submit(frame(number)) for number in range(5)]
            running.swap(first if round_ % 2 else second)
            reference = [number + 2 if round_ % 2 == 0 else 5 * number for number in range(5)]
            assert [future.result(30)[0] for future in futures] == reference
        assert [stage.name for stage in running.statistics().stages] == ["a", "b"]
        assert running.statistics().stages[0].frames_out == 15
    statistics = running.statistics()
    assert (statistics.submitted, statistics.delivered) == (30, 30)


def test_the_stream_goes_on_while_the_new_bundle_is_loaded(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    plan = chain(1)

    def create(device: Any) -> Any:
        runtime = functions(device)
        load = runtime.load
        runtime.load = lambda stage, code: (gate() if code == "slow" else None, load(stage, lambda x: [x]))[1]
        return runtime

    with Pipeline(plan, [None], create=create) as running:
        swapping = threading.Thread(target=running.swap, args=(bundle(plan, "slow"),))
        swapping.start()
        gate.wait_entered()
        for number in range(20):
            assert running.submit(frame(number)).result(30)[0] == number
        gate.open.set()
        swapping.join(30)
        assert running.submit(frame(7)).result(30)[0] == 7


def test_a_bundle_that_does_not_fit_or_load_leaves_no_trace(
    chain: Callable[..., Plan], graph: Callable[..., Plan], functions: Any
) -> None:
    with Pipeline(chain(1), [lambda x: [x + 1]], create=functions) as running:
        with pytest.raises(PlanError, match=r"other inputs: y: float32\[4\] instead of x: float32\[4\]"):
            running.swap(bundle(graph({"a": ["y"]}, inputs=["y"], outputs=["a"]), None))
        with pytest.raises(PlanError, match="other outputs"):
            running.swap(bundle(chain(2), None, None))
        with pytest.raises(PlanError, match="0 codes were given for 1 stages"):
            running.swap(bundle(chain(1)))
        with pytest.raises(PipelineError, match="cannot start: OSError: no such library"):
            running.swap(bundle(chain(1), OSError("no such library")))
        assert running.submit(frame(1)).result(30)[0] == 2
    with pytest.raises(PipelineClosed):
        running.swap(bundle(chain(1), lambda x: [x]))


def test_a_closed_pipeline_opens_no_device(chain: Callable[..., Plan], functions: Any) -> None:
    """In a process that was forked it hung for ever, on a lock that a thread of the parent's held."""
    with Pipeline(chain(1), [scale(2)], create=functions) as running:
        pass
    functions.log.clear()
    with pytest.raises(PipelineClosed):
        running.set_params("a", {"factor": np.ones(1, np.float32)})
    with pytest.raises(PipelineClosed):
        running.swap(Bundle(chain(1), [scale(3)]))
    assert functions.log == []


def test_former_workers_end_and_free_what_they_hold(chain: Callable[..., Plan], functions: Any) -> None:
    class Code:
        def __call__(self, x: np.ndarray) -> Sequence[np.ndarray]:
            return [x]

    thread_count = threading.active_count()
    codes = [Code() for _ in range(20)]
    alive = [weakref.ref(code) for code in codes]
    plan = chain(1)
    with Pipeline(plan, [codes.pop(0)], create=functions) as running:
        while codes:
            futures = [running.submit(frame(number)) for number in range(3)]
            running.swap(bundle(plan, codes.pop(0)))
            for future in futures:
                future.result(30)
        running.drain()
        wait_until(lambda: threading.active_count() <= thread_count + 1)
        running.swap(bundle(plan, Code()))
        wait_until(lambda: threading.active_count() <= thread_count + 1)
        running.swap(bundle(plan, Code()))
        collect()
        assert sum(each() is not None for each in alive) <= 2
        assert running.statistics().stages[0].frames_out == 19 * 3


def test_waiting_frames_keep_the_bundle_that_was_there_when_they_came(
    chain: Callable[..., Plan], functions: Any, gate: Any
) -> None:
    plan = chain(1, queue_depth=1)
    options: dict[str, Any] = {"admission": "drop-oldest", "waiting": 5}
    with Pipeline(plan, [lambda x: gate(x + 1)], create=functions, **options) as running:
        original_futures = [running.submit(frame(0))]
        gate.wait_entered()
        original_futures += [running.submit(frame(number)) for number in range(1, 4)]
        running.swap(bundle(plan, lambda x: [x + 100]))
        new_futures = [running.submit(frame(4))]
        gate.open.set()
        assert [future.result(30)[0] for future in original_futures] == [1, 2, 3, 4]
        assert [future.result(30)[0] for future in new_futures] == [104]


def test_concurrent_changes_do_not_lose_each_other(chain: Callable[..., Plan], functions: Any) -> None:
    plan = chain(2)
    with Pipeline(plan, [scale(1), scale(1)], create=functions) as running:
        threads = [
            threading.Thread(target=running.set_params, args=(name, {"factor": np.full(1, 3, np.float32)}))
            for name in ("a", "b")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert running.submit(frame(1)).result(30)[0] == 9


def test_places_follow_the_new_plan(chain: Callable[..., Plan], functions: Any, gate: Any) -> None:
    plan = chain(1, in_flight=1, queue_depth=9)
    with Pipeline(plan, [gate], create=functions) as running:
        running.swap(bundle(dataclasses.replace(plan, in_flight=3), gate))
        for _ in range(3):
            running.submit(frame(0), timeout=0)
        with pytest.raises(TimeoutError, match="takes 3 frames at once"):
            running.submit(frame(0), timeout=0)
        gate.open.set()
