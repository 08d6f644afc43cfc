"""Verification: a model as read beside the model in its own library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pipeline.errors import BuildError, InputError

if TYPE_CHECKING:
    import numpy as np

    from pipeline.core.plan.plan import Plan, TensorSpec
    from pipeline.core.plan.state import State
    from pipeline.split.graph import Graph
    from pipeline.workflow.reference_check import ReferenceCheck, ReferenceFrame

    Frame = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Verification:
    """Result of a verification."""

    reference: str
    """The library that the model was compared with; or its other kernels, where those are closer."""
    largest_error: float
    largest_value: float
    """Largest error and value over all outputs of the worst frame; values that are not finite do not count."""
    relative: float
    """The largest error of any output, as a share of that output's largest value."""
    tolerance: float
    """Upper bound on `relative`."""
    seed: int
    """Seed of the random input."""
    steps: float | None = None
    """The largest error of a quantised output, in steps of its scale; None if there is none."""
    allowed_steps: float = 0.0
    """Upper bound on `steps`."""
    frames: int = 1
    """Frames that were compared."""
    worst_frame: int = 0
    """Number of the frame that is described."""
    uncompared: tuple[str, ...] = ()
    """Outputs that the library computes differently each time, such as random numbers."""


def verify(
    graph: Graph,
    model: Any = None,
    *,
    tolerance: float | str | None = None,
    seed: int = 0,
    frames: Iterable[Frame | np.ndarray] | None = None,
) -> Verification:
    """Run a graph unsplit here, and its model in its own library.

    Parameters
    ----------
    graph : Graph
    model : str, Path, onnx.ModelProto, or torch.export.ExportedProgram, optional
        Reference for `graph`, by default the model that it was read from: ONNX in ONNX Runtime, PyTorch in PyTorch,
        TFLite in LiteRT.
    tolerance : float or str, optional
        Largest allowed error of an output: of floats as a share of its largest value, by default 1e-4, more with
        numbers of 16 bits; of quantised integers in steps, such as ``"3steps"``, by default 2, of which only one
        element in a thousand may be more than one step away.  Both: ``"0.001,3steps"``.
    seed : int
        Seed of the random input: normally distributed floats, integers of 8 bits in all their range, and zeros and
        ones; if the library does not take these, shares between 0 and 1, and integers that are lengths or rates.
    frames : iterable, optional
        Inputs to compare with instead of random ones: arrays by name, or arrays where there is one input.

    Raises
    ------
    BuildError
        If an output differs by more, or has another shape or dtype; the first operator that differs is named.
    InputError
        If there is no frame, or one does not fit the inputs.
    ModelError
        If there is no library to compare with.
    MissingExtra
        If it is not installed.
    """
    from pipeline.comparison.judgement import Tolerance
    from pipeline.frontends import references
    from pipeline.split.symbolic_model import with_source
    from pipeline.workflow import unsplit
    from pipeline.workflow.frame_search import FrameSearch
    from pipeline.workflow.plan import plan
    from pipeline.workflow.reference_check import ReferenceCheck

    allowed = Tolerance.of(tolerance)
    if model is not None:
        references.check(model)
        graph = with_source(graph, model)
    inputs = None if frames is None else named_frames(graph.frame_inputs, frames, graph.states)
    reference = ReferenceCheck.of(graph, allowed)
    # A library that is missing is found before minutes of compiling.
    reference.require_libraries()
    host = plan(graph, stages=1)
    unsplit_model = unsplit.UnsplitModel(graph, host)

    def check(inputs: Sequence[Frame], outputs: Sequence[Frame]) -> Verification:
        return replace(check_outputs(reference, host, inputs, outputs), seed=seed)

    if inputs is not None:
        return check(inputs, [unsplit_model.outputs(frame) for frame in inputs])
    # A strict search ends with a verification, or raises.
    verification: Verification = FrameSearch(graph, unsplit_model, seed, check, strict=True).run().verification
    return verification


def named_frames(
    specs: Sequence[TensorSpec], frames: Iterable[Frame | np.ndarray], states: Sequence[State] = ()
) -> list[Frame]:
    """Return frames by the names of a model's inputs, each the first of a stream if it says nothing of states.

    Raises `InputError` if there is none, or one does not fit.
    """
    first = {state.input.name: state.first_value() for state in states}
    named: list[Frame] = [{**first, **_named(specs, frame)} for frame in frames]
    if not named:
        raise InputError("there is no frame to compare; give at least one")
    return named


def _named(specs: Sequence[TensorSpec], frame: Frame | np.ndarray) -> Frame:
    if not isinstance(frame, Mapping):
        if len(specs) != 1:
            names = ", ".join(spec.name for spec in specs)
            raise InputError(f"a frame is one array, but the model has the inputs {names}; give arrays by these names")
        frame = {specs[0].name: frame}
    for spec in specs:
        if spec.name not in frame:
            raise InputError(f"a frame has no input {spec.name!r}; it has {', '.join(frame) or 'none'}")
        array = frame[spec.name]
        if (tuple(array.shape), str(array.dtype)) != (spec.shape, spec.dtype):
            raise InputError(f"input {spec.name!r} of a frame is {array.dtype}{list(array.shape)}, not {spec}")
    return frame


def check_outputs(
    reference: ReferenceCheck, plan: Plan, frames: Sequence[Frame], outputs: Sequence[Frame]
) -> Verification:
    """Compare a graph's outputs per frame with its sources' libraries.

    Raises `BuildError` if one differs; a plan's first device computes what is inside, to name the first operator that
    differs; `ModelError` if a library cannot run its model.
    """
    from pipeline.workflow import first_difference
    from pipeline.workflow.reference_check import worst

    graph = reference.graph
    checks = [reference.check_frame(frame, output) for frame, output in zip(frames, outputs, strict=True)]
    check = worst(checks)
    number = checks.index(check)
    if problems := check.problems:
        name = next(iter(problems))
        of_frame = f" of frame {number}" if len(checks) > 1 else ""
        hint = first_difference.describe(graph, plan, frames[number], list(problems), reference.bounds)
        raise BuildError(
            f"model {graph.name!r} differs from {check.reference}: output {name!r}{of_frame} {problems[name]}"
            + (f"; {hint}" if hint else "")
            + "; if that is rounding, give a larger tolerance"
        )
    return summarize(reference, checks)


def summarize(reference: ReferenceCheck, checks: Sequence[ReferenceFrame]) -> Verification:
    """Summarise frames as a verification."""
    from pipeline.comparison.compare import overall
    from pipeline.workflow.reference_check import worst

    check, bounds = worst(checks), reference.bounds
    differences = {name: judgement.difference for name, judgement in check.judgements.items()}
    total = overall(differences.values())
    judgements = check.judgements.values()
    by_steps = [judgement for judgement in judgements if judgement.steps is not None]
    by_share = [judgement.allowed for judgement in judgements if judgement.steps is None]
    return Verification(
        check.reference,
        total.largest_error,
        total.largest_value,
        max((difference.relative for difference in differences.values()), default=0.0),
        max(by_share, default=bounds.share),
        0,
        max((judgement.steps for judgement in by_steps if judgement.steps is not None), default=None),
        max((judgement.allowed for judgement in by_steps), default=bounds.steps),
        len(checks),
        checks.index(check),
        tuple(spec.name for spec in reference.graph.outputs if spec.name not in check.judgements),
    )
