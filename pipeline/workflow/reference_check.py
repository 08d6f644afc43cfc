"""Reference check: a graph's outputs beside its source libraries'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.comparison.compare import OutputDifference, compare_output
from pipeline.comparison.judgement import Bounds, Judgement, ReferenceOutput, Tolerance, judge
from pipeline.comparison.random_frame import perturb
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
    """Judgements of one frame's outputs."""

    reference: str
    judgements: Mapping[str, Judgement]
    """Judgements by output; without those that the library itself computes differently each time."""

    @property
    def problems(self) -> dict[str, str]:
        """Problems by output."""
        return {name: judgement.problem for name, judgement in self.judgements.items() if judgement.problem}


class ReferenceCheck:
    """Comparison of a graph's outputs with its sources' libraries, within bounds."""

    def __init__(self, graph: Graph, bounds: Bounds) -> None:
        self.graph, self.bounds = graph, bounds

    @staticmethod
    def of(graph: Graph, tolerance: Tolerance, *, floor: Bounds | None = None) -> ReferenceCheck:
        """Return the comparison by a tolerance, with bounds of at least `floor`."""
        rounding = rounding_of(spec.dtype for spec in graph.tensors.values())
        bounds = Bounds.of(tolerance, max(Bounds.share, rounding))
        if floor is not None:
            share = max(bounds.share, floor.share, rounding)
            bounds = replace(bounds, share=share, steps=max(bounds.steps, floor.steps))
        return ReferenceCheck(graph, bounds)

    @cached_property
    def steps(self) -> dict[str, float]:
        """Steps of the quantised outputs."""
        return output_steps(self.graph)

    @property
    def obstacle(self) -> str:
        """Reason against any comparison; empty if there is none."""
        if not self.graph.sources:
            return "no other library runs it"
        for source in self.graph.sources:
            # First: what is gone has no format.
            if source.has_changed:
                return f"{str(source.model)!r} is not what was read any more"
            if not references.library(source.model):
                return "the library that its format belongs to is not installed"
        return ""

    def require_libraries(self) -> None:
        """Raise `MissingExtra` for missing libraries of the models, or `ModelError` without any."""
        if not self.graph.sources:
            raise ModelError(f"{self.graph.name!r} cannot be verified: no other library runs what it was read from")
        for source in self.graph.sources:
            references.check(source.model)

    def check_frame(self, frame: Arrays, outputs: Arrays) -> ReferenceFrame:
        """Judge a frame's outputs.

        Only what differs by more than the bounds makes the library compute the frame in other ways, too: where its own
        results scatter, ours may lie as far away. Raises `ModelError` if a library cannot run its model.
        """
        expected = self.run(frame)
        check = self.judge(outputs, expected)
        if not check.problems:
            return check
        alternative = self.run(frame, alternative=True)
        if alternative[0] != expected[0] and not (check := self.judge(outputs, alternative)).problems:
            return check
        # The same frame twice: random numbers, and what is left from the frame before, come out differently.
        repeated = self.run(frame, runs=2)[1]
        same = {name: array for name, array in expected[1].items() if _is_same(array, repeated[name])}
        opinions = [alternative[1], self.run(perturb(frame))[1]]
        return self.judge(outputs, (expected[0], same), opinions, self._run_real(frame))

    def check_stages(self, outputs: Arrays, expected: Arrays) -> ReferenceFrame:
        """Judge a frame's tensors, made by other runtimes' stages, against the unsplit model's outputs."""
        reference = ("the unsplit model", {spec.name: expected[spec.name] for spec in self.graph.outputs})
        check = self.judge(outputs, reference)
        if not check.problems or self.obstacle:
            return check
        frame = {spec.name: outputs[spec.name] for spec in self.graph.inputs}
        try:
            # What a runtime makes of the model as a whole, it may make of its stages as well.
            outcomes = [self.run(frame), self.run(frame, alternative=True), self.run(perturb(frame))]
            real = self._run_real(frame)
        except ModelError:
            return check
        return self.judge(outputs, reference, [outcome[1] for outcome in outcomes], real)

    def run(self, frame: Arrays, *, alternative: bool = False, runs: int = 1) -> ReferenceOutputs:
        """Run a frame through the libraries; return their names and the outputs."""
        tensors, names = dict(frame), dict[str, None]()
        for source in self.graph.sources:
            inputs = {name: tensors[source.tensor(name)] for name in source.inputs}
            name, results = references.run(source.model, inputs, alternative=alternative, runs=runs)
            if len(results) != len(source.outputs):
                count = len(source.outputs)
                raise ModelError(f"{name} returns {len(results)} tensors, but {self.graph.name!r} has {count}")
            tensors |= {source.tensor(output): result for output, result in zip(source.outputs, results, strict=True)}
            names[name] = None
        return " and ".join(names), {spec.name: tensors[spec.name] for spec in self.graph.outputs}

    def _run_real(self, frame: Arrays) -> Arrays:
        """Run a frame through an unrounded quantised model, if there is one."""
        if len(self.graph.sources) != 1:
            return {}
        (source,) = self.graph.sources
        results = references.run_real(source.model, {name: frame[source.tensor(name)] for name in source.inputs})
        return {source.tensor(name): result for name, result in zip(source.outputs, results or (), strict=False)}

    def judge(
        self, outputs: Arrays, expected: ReferenceOutputs, opinions: Sequence[Arrays] = (), real: Arrays | None = None
    ) -> ReferenceFrame:
        """Judge the expected outputs, beside other opinions and unrounded numbers."""
        name, arrays = expected
        judgements = {}
        for spec in self.graph.outputs:
            if spec.name not in arrays:
                continue
            array = arrays[spec.name]
            if is_packed(spec) or str(array.dtype) == spec.dtype:
                others = [opinion[spec.name] for opinion in opinions]
                reference = ReferenceOutput(array, self.steps.get(spec.name), name, others, (real or {}).get(spec.name))
                judgements[spec.name] = judge(outputs[spec.name], reference, self.bounds)
            else:
                judgements[spec.name] = _other_dtype(spec, array, name)
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
