"""Import check: compares a graph with its format's library during the build.

It is here and not where a model is read, because whatever computes the graph has to be compiled first: that takes ten
times as long as reading, also without any optimisation, but a build does it anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pipeline.comparison.judgement import Bounds, Tolerance
from pipeline.comparison.random_frame import TrialFrame
from pipeline.core.packed_value import is_packed
from pipeline.core.plan.plan import Plan
from pipeline.errors import BuildError, reason
from pipeline.executor import devices
from pipeline.executor.build import runs_here
from pipeline.split.graph import Graph
from pipeline.workflow import unsplit
from pipeline.workflow.frame_search import FrameSearch
from pipeline.workflow.plan import plan as make_plan
from pipeline.workflow.reference_check import ReferenceCheck
from pipeline.workflow.verify import Verification, check_outputs

Frame = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class CheckOptions:
    """Extent of the comparison."""

    check: bool = True
    """The stages with the unsplit model."""
    verify: bool | None = None
    """The unsplit model with its library; None where that is installed and can run it."""
    frames: Sequence[Frame] = ()
    """Inputs to compare with instead of a random frame."""
    tolerance: Tolerance = field(default_factory=Tolerance)
    seed: int = 0
    """Seed of the random frame."""


@dataclass(frozen=True)
class ImportCheck:
    """Findings on a graph before its stages are built."""

    frame: TrialFrame | None = None
    """Frame of the computation: the user's first frame, or a random one that the model takes."""
    outputs: Mapping[str, np.ndarray] | None = None
    """Outputs of the frame, to compare the stages with; None if that is not to be done, or not possible here."""
    verification: Verification | None = None
    unverified: str = ""
    """Reason that there is none."""


def check_import(graph: Graph, plan: Plan, options: CheckOptions) -> ImportCheck:
    """Compute a graph unsplit and compare it with its format's library.

    Raises `BuildError` if they differ, or the graph fails on a frame of the user's; `ModelError` or `MissingExtra` if
    it must be compared, and cannot.
    """
    # Who is strict about stages, which are equal bit for bit, means no library, which rounds otherwise.
    reference = ReferenceCheck.of(graph, options.tolerance, floor=Bounds())
    why_not = _why_not(reference, plan, options)
    compares_stages = options.check and not graph.compiled and _run_here(plan)
    if why_not and not compares_stages:
        return ImportCheck(unverified=why_not)
    # Of stages for another machine, nothing but the model itself can be run.
    unsplit_plan = plan if compares_stages else make_plan(graph, stages=1)
    model = unsplit.UnsplitModel(graph, unsplit_plan)

    def verify(frames: Sequence[Frame], outputs: Sequence[Frame]) -> Verification:
        return replace(check_outputs(reference, unsplit_plan, frames, outputs), seed=options.seed)

    if options.frames:
        outputs = [_run(model, frame, number) for number, frame in enumerate(options.frames)]
        frame = TrialFrame(options.frames[0], "the first of your frames")
        return ImportCheck(frame, outputs[0] if compares_stages else None, verify(options.frames, outputs))
    search = FrameSearch(graph, model, options.seed, verify=None if why_not else verify, strict=bool(options.verify))
    trial = search.run()
    expected = trial.outputs if compares_stages else None
    return ImportCheck(trial.frame, expected, trial.verification, why_not or trial.unverified)


def _run(model: unsplit.UnsplitModel, frame: Frame, number: int) -> dict[str, np.ndarray]:
    try:
        return model.outputs(frame)
    except Exception as error:  # whatever an operator raises of values that it does not take
        raise BuildError(f"the model fails on frame {number} of yours: {reason(error)}") from error


def _why_not(reference: ReferenceCheck, plan: Plan, options: CheckOptions) -> str:
    """Return a reason against comparing, else empty."""
    if options.verify:
        reference.require_libraries()
        return ""
    if file := next(iter(reference.graph.compiled), None):
        return f"{file.tensor!r} comes from a file that is compiled for {file}, and nothing else computes it"
    if any(map(is_packed, reference.graph.inputs)):
        return "there are no random values of what has no fixed shape"
    if options.verify is False or not options.check:
        return "as it was asked for"
    if not any(devices.computes(plan.board.device(stage.device)) for stage in plan.units):
        return "no stage computes anything"
    return reference.obstacle


def _run_here(plan: Plan) -> bool:
    try:
        return all(runs_here(plan.board.device(stage.device)) for stage in plan.units)
    except BuildError:  # a target that is none: building will name the stage
        return False


EVERYTHING = CheckOptions()
"""Whatever can be compared, by the model's own tolerance."""
