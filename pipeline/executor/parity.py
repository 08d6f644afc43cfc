"""Parity: built stages together match the unsplit model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.comparison.compare import OutputDifference, compare_output, compare_outputs, overall
from pipeline.comparison.judgement import Judgement
from pipeline.comparison.random_frame import TrialFrame, random_frame
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.errors import BuildError
from pipeline.executor import devices
from pipeline.executor.stage_code import StageCode
from pipeline.system.threads import run_in_thread

REFERENCE = "the unsplit model"

BuiltStage = tuple[StagePlan, StageCode]


@dataclass(frozen=True)
class Parity:
    """Distance of the chained stages from the unsplit model, on one frame."""

    largest_error: float
    """Largest absolute difference of any output element."""
    largest_value: float
    """Largest absolute value of the unsplit model's outputs."""
    tolerance: float
    """Allowed error, as a share of `largest_value`."""
    seed: int
    """Seed of the random frame."""
    frame: str = ""
    """Description of the frame, such as ``"floats between 0 and 1"``; empty for the usual random one."""

    @property
    def relative(self) -> float:
        """The error as a share of the largest value."""
        return OutputDifference(self.largest_error, self.largest_value).relative


Judge = Callable[[Mapping[str, np.ndarray]], Mapping[str, Judgement]]
"""Judges a model's outputs by all tensors of a frame."""


def check_parity(  # noqa: PLR0913 - stages, and all that they are judged by
    plan: Plan,
    stages: Sequence[BuiltStage],
    expected: Mapping[str, np.ndarray],
    *,
    tolerance: float,
    seed: int = 0,
    judge: Judge | None = None,
    frame: TrialFrame | None = None,
) -> Parity:
    """Run one frame through the stages; by default `random_frame` of the seed.

    Expected are the outputs of the unsplit model for the frame, and those of stages that have a tolerance of their own.
    Raises `BuildError` if an output differs by more than `tolerance` of the largest value, or is NaN on one side only;
    `judge` judges instead, where other runtimes round otherwise.
    """
    frame = frame or TrialFrame(random_frame(plan.all_inputs, seed))
    tensors = run_stages(plan.board, stages, frame.arrays)
    # The stages with a tolerance of their own first: they tell where the error begins.
    for stage in plan.stages:
        _check_stage(stage, expected, tensors)
    if judge is not None:
        return _check_judgements(judge(tensors), tolerance, seed, frame.description)
    names = dict.fromkeys([*(spec.name for spec in plan.outputs), *(state.output for state in plan.states)])
    differences = compare_outputs(tensors, {name: expected[name] for name in names}, REFERENCE)
    for name, difference in differences.items():
        if difference.mismatch:
            raise BuildError(f"output {name!r} of the stages {difference.mismatch}")
    total = overall(differences.values())
    if not total.within(tolerance):
        raise BuildError(
            f"the stages differ from {REFERENCE} by {total.largest_error:.3g}, {total.relative:.3g} of the "
            f"largest output {total.largest_value:.3g}; allowed is {tolerance:.3g}"
        )
    return Parity(total.largest_error, total.largest_value, tolerance, seed, frame.description)


def _check_judgements(judgements: Mapping[str, Judgement], tolerance: float, seed: int, frame: str) -> Parity:
    for name, judgement in judgements.items():
        if judgement.problem:
            raise BuildError(
                f"output {name!r} of the stages differs from {REFERENCE} {judgement.problem}; if that is rounding, "
                "give a larger tolerance"
            )
    total = overall(judgement.difference for judgement in judgements.values())
    return Parity(total.largest_error, total.largest_value, max(tolerance, total.relative), seed, frame)


def _check_stage(stage: StagePlan, expected: Mapping[str, np.ndarray], tensors: Mapping[str, np.ndarray]) -> None:
    """Raise `BuildError` if a stage exceeds its tolerance."""
    if (tolerance := stage.options.tolerance) is None:
        return
    for spec in stage.outputs:
        difference = compare_output(tensors[spec.name], expected[spec.name], REFERENCE)
        if difference.mismatch:
            raise BuildError(f"{spec.name!r} of stage {stage.name!r} {difference.mismatch}")
        if not difference.within(tolerance):
            raise BuildError(
                f"{spec.name!r} of stage {stage.name!r} differs from {REFERENCE} by "
                f"{difference.largest_error:.3g}, {difference.relative:.3g} of its largest value "
                f"{difference.largest_value:.3g}; the stage allows {tolerance:.3g}"
            )


def run_stages(board: Board, stages: Sequence[BuiltStage], frame: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a frame through stages and return all tensors by name."""
    tensors = dict(frame)
    for stage, code in stages:
        # A stage for another machine is compared on this one, if both run the same code.
        device = devices.local_device(board.device(stage.device))
        kind = devices.thread_kind(device, stage.cores_of(0))
        # In another thread, whose cores are the stage's: the caller's own must not be pinned.
        tensors |= run_in_thread(functools.partial(_run_stage, device, stage, code, tensors), "parity", kind)
    return tensors


def _run_stage(device: Device, stage: StagePlan, code: Any, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run one stage and return copied outputs by name."""
    runtime = devices.create(device)
    runtime.open(stage.cores_of(0))
    try:
        program = runtime.load(stage, code)
        outputs = runtime.run(program, [runtime.copy_in(tensors[spec.name]) for spec in stage.inputs])
        # Copies, because the runtime's memory is given back with it.
        return {spec.name: runtime.copy_out(tensor).copy() for spec, tensor in zip(stage.outputs, outputs, strict=True)}
    finally:
        runtime.close()
