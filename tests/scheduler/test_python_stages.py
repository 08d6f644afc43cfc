"""Functions as stages: before, between and behind others."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan, TensorSpec, decode, encode
from pipeline.errors import InputError, PipelineError, PlanError, StageError
from pipeline.executor.python_stages import with_stage
from pipeline.scheduler import Pipeline, Trace

X = np.arange(4, dtype=np.float32)
PHOTO = TensorSpec("photo", (2, 4), "uint8")
LABEL = TensorSpec("label", (), "int64")


def shrink(photo: np.ndarray) -> np.ndarray:
    return np.asarray(photo.mean(axis=0, dtype=np.float32))


def decode_label(scores: np.ndarray) -> Any:
    return scores.argmax()


def add(x: np.ndarray) -> np.ndarray:
    return x + 1


def test_before_and_behind(chain: Callable[..., Plan]) -> None:
    plan, codes = with_stage(chain(2), [None, None], shrink, inputs=[PHOTO], outputs=["x"])
    plan, codes = with_stage(plan, codes, decode_label, inputs=["b"], outputs=[LABEL])
    assert [stage.name for stage in plan.stages] == ["shrink", "a", "b", "decode_label"]
    assert (plan.inputs, plan.outputs) == ((PHOTO,), (LABEL,))
    photo = np.array([[1, 2, 9, 3], [3, 4, 1, 1]], np.uint8)
    with Pipeline(plan, codes) as running:
        assert running.submit(photo).result(30) == 2
        with pytest.raises(InputError, match="'photo'"):
            running.submit(X)
    assert decode(encode(plan), "test") == plan


def test_between(chain: Callable[..., Plan]) -> None:
    """a -> add -> b: b reads what the function made of a's tensor, and the caller's names stay."""
    plan, codes = with_stage(chain(2), [None, None], add, inputs=["a"], outputs=["a"])
    assert [stage.name for stage in plan.stages] == ["a", "add", "b"]
    assert [spec.name for spec in (*plan.inputs, *plan.outputs)] == ["x", "b"]
    with Pipeline(plan, codes) as running:
        np.testing.assert_array_equal(running.submit(X).result(30), X + 1)


@pytest.mark.parametrize("tensor", ["x", "b"])
def test_an_input_or_output_is_filtered_under_its_name(chain: Callable[..., Plan], tensor: str) -> None:
    plan, codes = with_stage(chain(2), [None, None], add, inputs=[tensor], outputs=[tensor])
    assert [spec.name for spec in (*plan.inputs, *plan.outputs)] == ["x", "b"]
    with Pipeline(plan, codes) as running:
        np.testing.assert_array_equal(running.submit(X).result(30), X + 1)


def test_several_inputs_and_outputs_by_name(chain: Callable[..., Plan]) -> None:
    def both(x: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
        return {"sum": x + b, "difference": x - b}

    outputs = [TensorSpec("difference", (4,)), TensorSpec("sum", (4,))]
    plan, codes = with_stage(chain(2), [None] * 2, both, inputs=["x", "b"], outputs=outputs, name="compare")
    with Pipeline(plan, codes) as running:
        result = running.submit(X).result(30)
    np.testing.assert_array_equal(result["sum"], 2 * X)
    np.testing.assert_array_equal(result["difference"], 0 * X)


def test_functions_are_traced_timed_and_failed_like_the_others(chain: Callable[..., Plan]) -> None:
    def fail(x: np.ndarray) -> np.ndarray:
        if x[1] == 7:
            raise ValueError("too hot")
        return x

    plan, codes = with_stage(chain(1), [None], fail, inputs=["a"], outputs=["a"], replicas=2)
    trace = Trace()
    with Pipeline(plan, codes, trace=trace, stage_timeout={"fail": 30.0}) as running:
        running.submit(X).result(30)
        with pytest.raises(StageError, match="stage 'fail' on device 'python' failed on frame 1: ValueError: too hot"):
            running.submit(np.full(4, 7, np.float32)).result(30)
        stage = running.statistics().stages[1]
    assert (stage.name, stage.frames_out, stage.failed) == ("fail", 1, 1)
    kinds = {(event.frame, event.kind) for event in trace.events() if event.stage == "fail"}
    assert kinds >= {(0, "queue"), (0, "run"), (1, "queue"), (1, "failed")}
    assert (1, "run") not in kinds


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x[:2], r"the function returned float32\[2\] as made: float32\[4\]"),
        (lambda x: x.astype(np.int8), r"the function returned int8\[4\] as made"),
        (lambda x: (x, x), "the function returned 2 arrays; its outputs are 1"),
        (lambda x: {"b": x}, r"the function returned \['b'\]; its outputs are \['made'"),
        (lambda x: x.__iadd__(1), "read-only"),
    ],
)
def test_what_a_function_must_not_do_fails_the_frame(
    chain: Callable[..., Plan], function: Callable[..., Any], message: str
) -> None:
    plan, codes = with_stage(chain(2), [None, None], function, inputs=["x"], outputs=[TensorSpec("made", (4,))])
    with Pipeline(plan, codes) as running, pytest.raises(StageError, match=message):
        running.submit(X).result(30)


def test_a_stage_without_its_function_says_what_to_do(chain: Callable[..., Plan]) -> None:
    plan, _ = with_stage(chain(1), [None], add, inputs=["a"], outputs=["a"])
    with pytest.raises(PipelineError, match="needs a function, and got None; a saved bundle does not hold functions"):
        Pipeline(plan)


def test_impossible_places_are_refused(chain: Callable[..., Plan]) -> None:
    with pytest.raises(PlanError, match="the pipeline has no tensor 'bb'; did you mean 'b'"):
        with_stage(chain(2), [None] * 2, add, inputs=["bb"], outputs=["x"])
    with pytest.raises(
        PlanError, match="no place for the stage 'add': stage 'a' reads what it makes, and comes before"
    ):
        with_stage(chain(2), [None] * 2, add, inputs=["b"], outputs=["x"])


def test_functions_share_the_interpreter_but_not_the_thread(chain: Callable[..., Plan]) -> None:
    threads: set[int] = set()
    meet = threading.Barrier(2)

    def note(x: np.ndarray) -> np.ndarray:
        threads.add(threading.get_ident())
        meet.wait(30)
        return x

    plan, codes = with_stage(chain(1), [None], note, inputs=["a"], outputs=["a"], replicas=2)
    with Pipeline(plan, codes) as running:
        for future in [running.submit(X) for _ in range(4)]:
            future.result(30)
    assert len(threads) == 2


def test_a_function_may_return_its_own_buffer_each_time(chain: Callable[..., Plan]) -> None:
    """The last result stood for all of them."""
    own_buffer = np.zeros(4, np.float32)

    def double(x: np.ndarray) -> np.ndarray:
        np.multiply(x, 2, out=own_buffer)
        return own_buffer

    plan, codes = with_stage(chain(1), [None], double, inputs=["a"], outputs=[TensorSpec("y", (4,))])
    with Pipeline(plan, codes) as running:
        results = [future.result(30) for future in [running.submit(X + number) for number in range(20)]]
    np.testing.assert_array_equal(results, [2 * (X + number) for number in range(20)])
    assert not any(np.shares_memory(result, own_buffer) for result in results)


def test_what_is_declared_fresh_passes_by_reference(chain: Callable[..., Plan]) -> None:
    outcome: list[np.ndarray] = []

    def double(x: np.ndarray) -> np.ndarray:
        outcome.append(x * 2)
        return outcome[-1]

    plan, codes = with_stage(chain(1), [None], double, inputs=["a"], outputs=[TensorSpec("y", (4,))], fresh=True)
    with Pipeline(plan, codes) as running:
        result = running.submit(X).result(30)
    np.testing.assert_array_equal(result, 2 * X)
    assert np.shares_memory(result, outcome[0])
