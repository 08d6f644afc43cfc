"""Stages that become the steps of one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.plan import Plan, StepPlan, decode, encode
from pipeline.errors import PlanError
from tests.support.small_plans import plan, spec, stage

NPU_BOARD = Board(
    "test",
    (Device("cpu", cores=(0, 1), runtimes=("tvm", "litert")), Device("npu", "vendor", memory="far")),
    (Link(("host", "far"), 1e9, 1e-5),),
)


def chain() -> Plan:
    stages = (
        stage("first", "x", "a b", operators=("one", "two"), cores=(0,), seconds=1e-3),
        stage("second", "a z", "c", device="npu", operators=("three", "four"), seconds=2e-3, transfer_s=5e-4),
        stage("third", "c b", "d", operators=("five", "five"), cores=(1,), seconds=1.5e-3),
        stage("fourth", "d", "y", device="npu", operators=("six", "seven"), seconds=5e-4),
    )
    inputs, outputs = (spec("x"), spec("z")), (spec("y"), spec("c"))
    return Plan("m", "d", NPU_BOARD, inputs, outputs, stages)


def test_the_new_stage_has_the_others_as_its_steps() -> None:
    joined = chain().join("first", "third")
    assert [each.name for each in joined.stages] == ["first", "fourth"]
    (first, _) = joined.stages
    assert (first.device, first.cores, first.replicas) == ("cpu", (0, 1), 1)
    assert first.operators == ("one", "five")
    assert [each.name for each in first.inputs] == ["x", "z"]
    # What nobody behind reads does not leave it.
    assert [each.name for each in first.outputs] == ["c", "d"]
    assert [step.device for step in first.steps] == ["cpu", "npu", "cpu"]
    assert first.seconds == pytest.approx(4.5e-3)
    assert first.transfer_s == pytest.approx(5e-4)


def test_what_is_built_is_the_same_as_before() -> None:
    before, joined = chain(), chain().join("first", "third")
    assert [unit.name for unit in joined.units] == ["first.step0", "first.step1", "first.step2", "fourth"]
    for unit, old_unit in zip(joined.units, before.units, strict=True):
        assert (unit.device, unit.inputs, unit.outputs) == (old_unit.device, old_unit.inputs, old_unit.outputs)
        assert (unit.operators, unit.seconds) == (old_unit.operators, old_unit.seconds)
        assert not unit.steps
    assert before.units == before.stages


def test_replicas_share_the_cores_and_each_step_knows_its_own() -> None:
    joined = chain().join("first", "fourth", cores=(1, 0), replicas=2)
    (only,) = joined.stages
    assert [only.cores_of(replica) for replica in range(2)] == [(1,), (0,)]
    assert [unit.cores_of(1) for unit in joined.units] == [(0,)] * 4


def test_a_plan_with_steps_is_written_and_read() -> None:
    joined = chain().join("first", "third", replicas=2)
    assert decode(encode(joined), "plan") == joined


def test_the_target_of_a_stage_is_that_of_its_own_device() -> None:
    joined = chain().join("first", "third").with_options("first", target={"mcpu": "x"}, precision="bfloat16")
    assert [unit.options.target for unit in joined.units] == [{"mcpu": "x"}, None, {"mcpu": "x"}, None]
    assert [unit.options.precision for unit in joined.units] == ["bfloat16"] * 3 + [None]


def test_another_runtime_of_the_own_device_is_not_borrowed() -> None:
    (first, *others) = chain().stages
    steps = (
        StepPlan("cpu/litert", (), (spec("x"),), (spec("a"),)),
        StepPlan("npu", (), (spec("a"),), (spec("b"),)),
    )
    stages = (replace(first, steps=(*steps, replace(steps[0], inputs=(spec("x"),), outputs=(spec("q"),)))), *others)
    with_runtimes = replace(chain(), stages=stages)
    assert with_runtimes.board.is_one_device("cpu/litert", "cpu")
    assert not with_runtimes.board.is_one_device("npu", "cpu")


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        ("third", "first", "stage 'first' comes before stage 'third'; give the first one first"),
        ("first", "fifth", "the plan has no stage 'fifth'"),
    ],
)
def test_only_stages_in_their_order_can_be_joined(first: str, last: str, message: str) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        chain().join(first, last)


def test_steps_have_no_steps() -> None:
    joined = chain().join("first", "second")
    with pytest.raises(PlanError, match="stage 'first' has steps already"):
        joined.join("first", "third")


def test_a_device_that_is_made_of_cores_cannot_be_borrowed() -> None:
    two = plan(stage("first", "x", "a"), stage("second", "a z", "y", device="far"))
    with pytest.raises(PlanError, match=r"step 0 of stage 'first' cannot borrow 'cpu', which is made of cores"):
        two.join("first", "second", device="far")


def test_a_stage_with_steps_has_one_device() -> None:
    (first, *others) = chain().join("first", "third", replicas=2).stages
    with pytest.raises(PlanError, match="a stage with steps has one device of its own"):
        replace(chain(), stages=(replace(first, replica_devices=("cpu", "cpu")), *others))
