"""A plan that exists is possible, never changes, and is its JSON file.

The numbers are those of the predecessor's faults.  What its own tests had refused: unknown outputs, unknown inputs,
cycles, connections of a stage to itself, wrong directions and kinds, and so on; here all of it is refused when the
plan is made, naming stage and tensor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pipeline.core.plan.plan import Plan, StagePlan, StepPlan, decode, encode
from pipeline.errors import BoardError, PlanError
from pipeline.prediction.contention import WAKING_S
from pipeline.prediction.predict import predict
from tests.support.small_plans import BOARD, plan, skip_plan, spec, stage


def test_a_graph_with_skips_and_fan_out_is_accepted() -> None:
    pipeline_plan = skip_plan()
    assert pipeline_plan.frames_in_flight == (1 + 2) + (1 + 4) + (1 + 2)
    assert predict(pipeline_plan).interval_s == 2e-3 + WAKING_S
    assert pipeline_plan.unsplit_seconds * predict(pipeline_plan).frames_per_s == pytest.approx(4 / 2.05)


def test_one_output_feeds_many_stages() -> None:
    """Fault 9."""
    readers = [stage(f"reader{number}", "a a2", f"y{number}") for number in range(5)]
    plan(stage("maker", "x", "a a2"), *readers, outputs=" ".join(f"y{number}" for number in range(5)))


def test_inputs_are_counted_once_however_many_stages_read_them() -> None:
    """Fault 10."""
    pipeline_plan = plan(stage("first", "x", "a"), stage("second", "x a", "y"), inputs="x")
    assert [each.name for each in pipeline_plan.inputs] == ["x"]


def test_an_output_may_be_read_by_stages_too_and_inputs_by_none() -> None:
    plan(stage("first", "x", "y"), stage("second", "y", "b"), outputs="y b", inputs="x unread")


# What is refused.


REFUSED: dict[str, tuple[Callable[[], Plan], str]] = {
    "no stage": (plan, "a plan needs at least one stage"),
    "no output": (lambda: plan(stage("s", "x", "y"), outputs=""), "at least one output"),
    "unknown input": (
        lambda: plan(stage("s", "xx", "y")),
        "stage 's' reads 'xx', which nothing makes; did you mean 'x'",
    ),
    "unknown output": (
        lambda: plan(stage("s", "x", "a"), outputs="aa"),
        "no stage makes the model output 'aa'; did you mean 'a'",
    ),
    "self-connection": (
        lambda: plan(stage("s", "x y", "y")),
        "stage 's' reads 'y', which it makes itself; a stage reads model inputs and earlier stages only",
    ),
    "cycle": (
        lambda: plan(stage("s", "x b", "a"), stage("t", "a", "b"), outputs="b"),
        "stage 's' reads 'b', which the later stage 't' makes; order the stages so that producers come first",
    ),
    "wrong direction": (
        lambda: plan(stage("s", "a", "y"), stage("t", "x", "a")),
        "stage 's' reads 'a', which the later stage 't' makes",
    ),
    "two producers": (
        lambda: plan(stage("s", "x", "a"), stage("t", "x", "a"), outputs="a"),
        "stage 't' makes 'a', which is already an output of stage 's'; rename one",
    ),
    "output into an input": (
        lambda: plan(stage("s", "x", "z"), outputs="z"),
        "stage 's' makes 'z', which is already a model input",
    ),
    "one output twice": (lambda: plan(stage("s", "x", "a a"), outputs="a"), "stage 's' makes 'a', which is already"),
    "one input twice": (lambda: plan(stage("s", "x x", "y")), "input of stage 's' 'x' is there twice"),
    "doubled model output": (lambda: plan(stage("s", "x", "y"), outputs="y y"), "model output 'y' is there twice"),
    "doubled model input": (lambda: plan(stage("s", "x", "y"), inputs="x x"), "model input 'x' is there twice"),
    "doubled stage": (lambda: plan(stage("s", "x", "y"), stage("s", "y", "b")), "stage 's' is there twice"),
    "no inputs": (lambda: plan(stage("s", "", "y")), "stage 's' has no input; every stage reads a model input"),
    "nothing made": (lambda: plan(stage("s", "x", "")), "stage 's' has no output; remove it, or name what it makes"),
    "queue": (lambda: plan(stage("s", "x", "y", queue_depth=0)), "queue_depth is 0; it must be at least 1"),
    "in flight": (lambda: plan(stage("s", "x", "y"), in_flight=-1), "in_flight is -1"),
    "negative time": (lambda: plan(stage("s", "x", "y", seconds=-1.0)), "seconds is -1.0; it must be a time"),
    "no time": (lambda: plan(stage("s", "x", "y", seconds=float("nan"))), "seconds is nan"),
    "endless time": (lambda: plan(stage("s", "x", "y", seconds=float("inf"))), "seconds is inf"),
    "doubled core": (lambda: plan(stage("s", "x", "y", cores=(1, 1))), r"cores are \[1, 1\]"),
    "negative core": (lambda: plan(stage("s", "x", "y", cores=(-1,))), r"cores are \[-1\]"),
    "shapes": (
        lambda: plan(StagePlan("s", "cpu", (spec("x", (5,)),), (spec("y"),))),
        r"stage 's' expects x: float32\[5\], but it is made as x: float32\[4\]",
    ),
    "dtypes": (
        lambda: Plan("m", "", BOARD, (spec("x"),), (spec("y", dtype="int8"),), (stage("s", "x", "y"),)),
        r"the model output expects y: int8\[4\], but it is made as y: float32\[4\]",
    ),
    "an unknown dtype": (
        lambda: Plan("m", "", BOARD, (spec("x", dtype="float31"),), (spec("y"),), (stage("s", "z", "y"),)),
        "tensor 'x' has the dtype 'float31', which NumPy does not know",
    ),
    "a negative extent": (
        lambda: Plan("m", "", BOARD, (spec("x", (2, -1)),), (spec("y"),), (stage("s", "z", "y"),)),
        r"tensor 'x' has the shape \[2, -1\]",
    ),
    "a newer format": (lambda: plan(stage("s", "x", "y"), format=3), "format 3, but this version reads format 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_impossible_is_refused_when_the_plan_is_made(case: str) -> None:
    """Faults 13 and 20, and what the predecessor's tests asserted: refused at once, with one line naming it."""
    make, message = REFUSED[case]
    with pytest.raises(PlanError, match=message) as caught:
        make()
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.exit_status == 2


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(BoardError, match="board 'test' has no device 'cup'; it has cpu, far; did you mean 'cpu'"):
        plan(stage("s", "x", "y", device="cup"))


def test_a_refused_change_leaves_no_trace() -> None:
    """Fault 12: a rejected connection stays in the configuration."""
    pipeline_plan = skip_plan()
    encoded = encode(pipeline_plan)
    with pytest.raises(PlanError):
        dataclasses.replace(pipeline_plan, stages=pipeline_plan.stages[::-1])
    assert encode(pipeline_plan) == encoded


def test_reading_a_plan_does_not_change_it() -> None:
    """Fault 11: printing or reading the configuration changes it."""
    pipeline_plan = skip_plan()
    encoded = encode(pipeline_plan)
    texts = [
        (
            repr(pipeline_plan),
            str(pipeline_plan),
            hash(pipeline_plan.stages),
            predict(pipeline_plan).interval_s,
            pipeline_plan.frames_in_flight,
        )
        for _ in range(2)
    ]
    assert texts[0] == texts[1]
    assert encode(pipeline_plan) == encoded
    for value, name in (
        (pipeline_plan, "model"),
        (pipeline_plan.stages[0], "cores"),
        (pipeline_plan.inputs[0], "shape"),
        (BOARD, "name"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, None)


def test_tensors_know_their_size() -> None:
    assert spec("t", (2, 3), "int16").nbytes == 12
    assert spec("t", (), "float64").nbytes == 8
    assert spec("t", (0, 3)).nbytes == 0
    assert str(spec("t", (2, 3))) == "t: float32[2, 3]"


STEPS = (
    StepPlan("cpu", ("one", "one"), (spec("x"),), (spec("a"),), 1e-3),
    StepPlan("far", ("two", "two"), (spec("a"), spec("x")), (spec("y"),), 2e-3, transfer_s=1e-3),
)


def test_replicas_times_traffic_steps_and_the_order_survive_the_file() -> None:
    stages = (
        stage("s", "x", "y", replicas=2, replica_seconds=(1e-3, 3e-3), memory_traffic=1e6, steps=STEPS, seconds=2e-3),
    )
    original_plan = plan(*stages, order=("one", "two"))
    decoded = decode(encode(original_plan), "here")
    assert decoded == original_plan
    assert decoded.stages[0].replica_times == (1e-3, 3e-3)
    assert decoded.stages[0].mean_seconds == pytest.approx(1.5e-3)
    assert decoded.frames_in_flight == 3 + 1 + 2, "while one has a frame for 3 ms, the other ends three"


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "times": ({"replicas": 3, "replica_seconds": (1.0, 2.0)}, "replica_seconds has 2 times for 3 replicas"),
    "negative time": ({"replica_seconds": (-1.0,)}, r"replica_seconds\[0\] is -1.0; it must be a time"),
    "traffic": ({"memory_traffic": -1.0}, "memory_traffic is -1.0; it must be bytes"),
    "order of steps": ({"steps": STEPS[::-1]}, "step 0 of stage 's' reads 'a', which nothing before it makes"),
    "missing step": ({"steps": STEPS[:1]}, "no step of stage 's' makes its output 'y'"),
    "step twice": ({"steps": (STEPS[0], *STEPS)}, "step 1 of stage 's' makes 'a', which is there already"),
    "step of nothing": ({"steps": (replace(STEPS[0], outputs=()),)}, "needs at least one input and one output"),
    "shape": ({"steps": (STEPS[0], replace(STEPS[1], outputs=(spec("y", (5,)),)))}, "stage 's' expects y: float32"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_impossible_replicas_and_steps_are_refused(name: str) -> None:
    options, message = FAULTS[name]
    with pytest.raises(PlanError, match=message):
        plan(stage("s", "x", "y", **options))


def test_a_step_on_an_unknown_device_is_refused() -> None:
    with pytest.raises(BoardError, match="no device 'fat'"):
        plan(stage("s", "x", "y", steps=(replace(STEPS[0], device="fat"), STEPS[1])))


def test_an_order_with_an_operator_twice_is_refused() -> None:
    with pytest.raises(PlanError, match="operator of the order 'one' is there twice"):
        plan(stage("s", "x", "y"), order=("one", "one"))
