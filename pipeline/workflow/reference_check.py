"""Reference check: a graph's outputs beside its source libraries'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.comparison.compare import OutputDifference, compare_output
from pipeline.comparison.judgement import Bounds, Judgement, ReferenceOutput, judge
from pipeline.comparison.random_frame import perturb
from pipeline.comparison.tolerance import Tolerance
from pipeline.core.numerics import rounding_of
from pipeline.core.packed_value import is_packed
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import ModelError
from pipeline.frontends import references
from pipeline.split.graph import Graph
from pipeline.split.output_quantization import output_steps

Arrays = Mapping[str, np.ndarray]

ReferenceOutputs = tuple[str, Arrays]
"""The name of what computed a graph's outputs, and these."""


@dataclass(frozen=True)
class ReferenceFrame:
    """Judgements of one frame's outputs.

    Attributes
    ----------
    reference : str
        What they were compared with.
    judgements : mapping of str to Judgement
        By output; without those that the library itself computes differently each time.
    """

    reference: str
    judgements: Mapping[str, Judgement]

    @property
    def problems(self) -> dict[str, str]:
        """Problems by output."""
        return {name: judgement.problem for name, judgement in self.judgements.items() if judgement.problem}


def bounds_of(graph: Graph, tolerance: Tolerance, *, floor: Bounds | None = None) -> Bounds:
    """Return the tolerances of a graph's outputs, at least `floor`."""
    rounding = rounding_of(spec.dtype for spec in graph.tensors.values())
    bounds = Bounds.of(tolerance, max(Bounds.share, rounding))
    if floor is None:
        return bounds
    return replace(bounds, share=max(bounds.share, floor.share, rounding), steps=max(bounds.steps, floor.steps))


def why_impossible(graph: Graph) -> str:
    """Explain a graph without reference, else empty."""
    if not graph.sources:
        return "no other library runs it"
    for source in graph.sources:
        # First: what is gone has no format.
        if source.has_changed:
            return f"{str(source.model)!r} is not what was read any more"
        if not references.library(source.model):
            return "the library that its format belongs to is not installed"
    return ""


def require_libraries(graph: Graph) -> None:
    """Raise `MissingExtra` for missing libraries of a graph's models, or `ModelError` without any."""
    if not graph.sources:
        raise ModelError(f"{graph.name!r} cannot be verified: no other library runs what it was read from")
    for source in graph.sources:
        references.check(source.model)


def check_frame(graph: Graph, frame: Arrays, outputs: Arrays, bounds: Bounds) -> ReferenceFrame:
    """Judge a frame's outputs.

    Only what differs by more than `bounds` makes the library compute the frame in other ways, too: where its own
    results scatter, ours may lie as far away.

    Parameters
    ----------
    graph : Graph
    frame, outputs : mapping of str to numpy.ndarray
    bounds : Bounds

    Raises
    ------
    ModelError
        If a library cannot run its model.
    """
    expected = run_sources(graph, frame)
    check = _judge_all(graph, outputs, expected, bounds)
    if not check.problems:
        return check
    alternative = run_sources(graph, frame, alternative=True)
    if alternative[0] != expected[0] and not (check := _judge_all(graph, outputs, alternative, bounds)).problems:
        return check
    # The same frame twice: random numbers, and what is left from the frame before, come out differently.
    repeated = run_sources(graph, frame, runs=2)[1]
    same = {name: array for name, array in expected[1].items() if _is_same(array, repeated[name])}
    opinions = [alternative[1], run_sources(graph, perturb(frame))[1]]
    return _judge_all(graph, outputs, (expected[0], same), bounds, opinions, _run_real(graph, frame))


def check_stages(graph: Graph, outputs: Arrays, expected: Arrays, bounds: Bounds) -> ReferenceFrame:
    """Judge other runtimes' stage outputs against the unsplit model's.

    Parameters
    ----------
    graph : Graph
    outputs : mapping of str to numpy.ndarray
        All tensors of a frame, also its inputs.
    expected : mapping of str to numpy.ndarray
        The unsplit model's outputs.
    bounds : Bounds
    """
    reference = ("the unsplit model", {spec.name: expected[spec.name] for spec in graph.outputs})
    check = _judge_all(graph, outputs, reference, bounds)
    if not check.problems or why_impossible(graph):
        return check
    frame = {spec.name: outputs[spec.name] for spec in graph.inputs}
    try:
        # What a runtime makes of the model as a whole, it may make of its stages as well.
        outcomes = [run_sources(graph, frame), run_sources(graph, frame, alternative=True)]
        opinions = [outcome[1] for outcome in (*outcomes, run_sources(graph, perturb(frame)))]
        real = _run_real(graph, frame)
    except ModelError:
        return check
    return _judge_all(graph, outputs, reference, bounds, opinions, real)


def _run_real(graph: Graph, frame: Arrays) -> Arrays:
    """Run a frame through an unrounded quantised model, if there is one."""
    if len(graph.sources) != 1:
        return {}
    (source,) = graph.sources
    results = references.run_real(source.model, {name: frame[source.tensor(name)] for name in source.inputs})
    return {source.tensor(name): result for name, result in zip(source.outputs, results or (), strict=False)}


def run_sources(graph: Graph, frame: Arrays, *, alternative: bool = False, runs: int = 1) -> ReferenceOutputs:
    """Run a frame through a graph's libraries; return names and outputs."""
    tensors, names = dict(frame), dict[str, None]()
    for source in graph.sources:
        inputs = {name: tensors[source.tensor(name)] for name in source.inputs}
        name, results = references.run(source.model, inputs, alternative=alternative, runs=runs)
        if len(results) != len(source.outputs):
            raise ModelError(f"{name} returns {len(results)} tensors, but {graph.name!r} has {len(source.outputs)}")
        tensors |= {source.tensor(output): result for output, result in zip(source.outputs, results, strict=True)}
        names[name] = None
    return " and ".join(names), {spec.name: tensors[spec.name] for spec in graph.outputs}


def _judge_all(  # noqa: PLR0913, PLR0917 - outputs and all that they are judged by
    graph: Graph,
    outputs: Arrays,
    expected: ReferenceOutputs,
    bounds: Bounds,
    opinions: Sequence[Arrays] = (),
    real: Arrays | None = None,
) -> ReferenceFrame:
    """Judge the expected outputs."""
    name, arrays = expected
    steps = output_steps(graph)
    judgements = {
        spec.name: judge(
            outputs[spec.name],
            ReferenceOutput(
                arrays[spec.name],
                steps.get(spec.name),
                name,
                [opinion[spec.name] for opinion in opinions],
                (real or {}).get(spec.name),
            ),
            bounds,
        )
        if is_packed(spec) or str(arrays[spec.name].dtype) == spec.dtype
        else _other_dtype(spec, arrays[spec.name], name)
        for spec in graph.outputs
        if spec.name in arrays
    }
    return ReferenceFrame(name, judgements)


def _other_dtype(spec: TensorSpec, array: np.ndarray, reference: str) -> Judgement:
    mismatch = f"is {spec.dtype}{list(spec.shape)}, but {array.dtype}{list(array.shape)} by {reference}"
    return Judgement(OutputDifference(np.inf, 0.0, mismatch), problem=mismatch)


def _is_same(first: Any, second: Any) -> bool:
    difference = compare_output(first, second)
    return not difference.mismatch and difference.largest_error == 0


def worst(frames: Iterable[ReferenceFrame]) -> ReferenceFrame:
    """Return the worst frame: with a problem, or the largest error."""
    return max(frames, key=lambda frame: (bool(frame.problems), _largest_share(frame)))


def _largest_share(frame: ReferenceFrame) -> float:
    return max((judgement.difference.relative for judgement in frame.judgements.values()), default=0.0)
