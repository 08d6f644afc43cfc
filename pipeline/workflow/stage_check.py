"""Stage check: stage files run in order, compared with their model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.comparison.judgement import ReferenceOutput, Tolerance, judge
from pipeline.core import packed_value
from pipeline.core.packed_model import SourceRuntime
from pipeline.core.packed_value import is_packed
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import BuildError, ModelError
from pipeline.frontends import references
from pipeline.split.graph import Graph
from pipeline.system.optional import require
from pipeline.workflow import unsplit
from pipeline.workflow.frame_search import library_frame
from pipeline.workflow.plan import plan as make_plan
from pipeline.workflow.reference_check import ReferenceCheck, ReferenceFrame, worst
from pipeline.workflow.stage_files import StageFile, StageManifest
from pipeline.workflow.verify import Verification, named_frames, summarize

Frame = Mapping[str, np.ndarray]

_UNSPLIT = "the unsplit model"


@dataclass(frozen=True)
class StageCheck:
    """A planned comparison."""

    reference: ReferenceCheck
    frames: Sequence[Frame]
    """The inputs, at least one frame unless `unverified` says why there is none."""
    seed: int
    """Seed of the random frame."""
    strict: bool
    """True if a model that its own library cannot run is an error."""
    unverified: str = ""
    """Reason that nothing is compared; empty if it is."""

    @staticmethod
    def of(
        graph: Graph,
        library: SourceRuntime,
        *,
        verify: bool | Iterable[Any] | None,
        tolerance: float | str | None,
        seed: int,
    ) -> StageCheck:
        """Return `pipeline.export_stages`' comparison; raise `MissingExtra` if required but impossible."""
        reference = ReferenceCheck.of(graph, Tolerance.of(tolerance))
        if verify is not None and not isinstance(verify, bool):
            require(library.package, library.extra, f"running the stages by {library.title}")
            return StageCheck(reference, named_frames(graph.frame_inputs, verify, graph.states), seed, strict=True)
        if unverified := _why_not(graph, library, verify):
            return StageCheck(reference, (), seed, strict=False, unverified=unverified)
        return StageCheck(reference, [library_frame(graph, seed)], seed, strict=bool(verify))

    def run(self, folder: Path, manifest: StageManifest) -> Verification | str:
        """Run the files and compare, or return the library's failure.

        Raises `BuildError` if the files compute something else, or cannot be run.
        """
        try:
            checks = [self._check_frame(frame, folder, manifest.stages) for frame in self.frames]
        except ModelError as error:
            # Not each library takes random numbers for each input, such as lengths or addresses.
            if self.strict:
                raise
            return str(error)
        check = worst(checks)
        for name, problem in check.problems.items():
            raise BuildError(
                f"the stages of {self.reference.graph.name!r}, run one after the other, differ from {check.reference}: "
                f"output {name!r} {problem}; if that is rounding, give a larger tolerance"
            )
        return replace(summarize(self.reference, checks), seed=self.seed)

    def _check_frame(self, frame: Frame, folder: Path, stages: Sequence[StageFile]) -> ReferenceFrame:
        graph, has_library = self.reference.graph, not self.reference.obstacle
        try:
            outputs = _run_stages(graph, frame, folder, stages)
        except ModelError as error:
            # What the model's own library cannot compute either, which raises, says nothing of the stages.
            if has_library:
                self.reference.run(frame)
            raise BuildError(f"a stage of {graph.name!r} was written that cannot be run: {error}") from error
        if has_library:
            return self.reference.check_frame(frame, outputs)
        expected = unsplit.outputs_of(graph, make_plan(graph, stages=1), [frame])[0]
        steps = self.reference.steps
        return ReferenceFrame(
            _UNSPLIT,
            {
                name: judge(outputs[name], ReferenceOutput(array, steps.get(name), _UNSPLIT), self.reference.bounds)
                for name, array in expected.items()
                if name in outputs
            },
        )


def _why_not(graph: Graph, library: SourceRuntime, verify: bool | None) -> str:
    if verify is False:
        return "as it was asked for"
    if any(map(is_packed, graph.inputs)):
        return "there are no random values of what has no fixed shape"
    if verify:
        require(library.package, library.extra, f"running the stages by {library.title}")
    return "" if library.is_installed else f"{library.title} is not installed"


def _run_stages(graph: Graph, frame: Frame, folder: Path, stages: Sequence[StageFile]) -> dict[str, np.ndarray]:
    tensors = dict(frame)
    for stage in stages:
        inputs = {spec.name: packed_value.read(tensors[spec.name]) for spec in stage.inputs}
        _, results = references.run(folder / stage.file, inputs)
        for spec, result in zip(stage.outputs, results, strict=True):
            tensors[spec.name] = packed_value.pack(result) if is_packed(spec) else result
            _check_type(stage, spec, tensors[spec.name])
    return {spec.name: tensors[spec.name] for spec in graph.outputs}


def _check_type(stage: StageFile, spec: TensorSpec, array: np.ndarray) -> None:
    if (array.shape, str(array.dtype)) != (spec.shape, spec.dtype):
        raise BuildError(f"stage {stage.stage!r} makes {array.dtype}{list(array.shape)} where the plan has {spec}")
