"""Readable names of stages, from those of their operators."""

from __future__ import annotations

import pytest

from pipeline.core.plan.plan import Plan
from pipeline.core.plan.stage_plan import StagePlan
from pipeline.core.plan.stage_titles import LONGEST, stage_titles
from pipeline.errors import PlanError
from tests.support.small_plans import skip_plan


@pytest.mark.parametrize(
    ("operators", "titles"),
    [
        ([("conv0", "relu1"), ("conv2", "softmax")], ("conv0..relu1", "conv2..softmax")),
        # As deep as it takes to tell neighbours apart; PyTorch's exporter repeats a module's name in its children's.
        (
            [("/conv1/Conv", "/layer2/layer2.0/relu/Relu"), ("/layer2/layer2.1/conv1/Conv", "/fc/Gemm")],
            ("conv1..layer2.0", "layer2.1..fc"),
        ),
        # What is around all of them tells nothing.
        (
            [("/model/model.0/conv/Conv", "/model/model.9/act/Mul"), ("/model/model.10/Resize", "/model/model.22/Add")],
            ("model.0..model.9", "model.10..model.22"),
        ),
        ([("op_1", "op_4"), ("op_5", "op_9")], ("op_1..op_4", "op_5..op_9")),
        ([("only", "only")], ("only",)),
        ([(), ()], ("stage0", "stage1")),
    ],
)
def test_titles_are_of_modules(operators: list[tuple[str, ...]], titles: tuple[str, ...]) -> None:
    assert stage_titles(stages(operators)) == titles


def test_titles_are_short_and_unique() -> None:
    long = "a_very_long_name_of_a_module/with_another_long_name_inside"
    titles = stage_titles(stages([(f"{long}/{number}x", f"{long}/{number}y") for number in range(12)]))
    assert len(set(titles)) == 12
    assert max(map(len, titles)) <= LONGEST


def test_a_stage_is_found_by_title_and_by_position() -> None:
    plan: Plan = skip_plan()
    names = [stage.name for stage in plan.stages]
    assert [plan.stage(name) for name in plan.titles] == list(plan.stages)
    assert [plan.stage(f"stage{number}") for number in range(len(names))] == list(plan.stages)
    with pytest.raises(PlanError, match=f"no stage 'stage9'; it has {', '.join(names)}"):
        plan.stage("stage9")


def stages(operators: list[tuple[str, ...]]) -> list[StagePlan]:
    return [StagePlan(f"stage{number}", "cpu", (), (), pair) for number, pair in enumerate(operators)]
