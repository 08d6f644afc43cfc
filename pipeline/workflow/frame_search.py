"""Frame search: random frames acceptable to models with restricted inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.comparison.judgement import Bounds
from pipeline.comparison.random_frame import TrialFrame, candidates, is_tame
from pipeline.errors import BuildError, ModelError, reason
from pipeline.split.graph import Graph
from pipeline.workflow.reference_check import ReferenceCheck
from pipeline.workflow.unsplit import UnsplitModel

Frame = Mapping[str, np.ndarray]

REMEDY = "give frames of your own: --verify FILES, or verify=[frame] in Python"


@dataclass(frozen=True)
class FrameTrial:
    """Outcome of a frame."""

    frame: TrialFrame | None = None
    """Frame; None if the model takes no random frame."""
    outputs: Frame | None = None
    """Outputs of the unsplit model."""
    verification: Any = None
    unverified: str = ""
    """Reason that there is none."""


@dataclass(frozen=True)
class FrameSearch:
    """Search through random frames of several kinds."""

    graph: Graph
    model: UnsplitModel
    seed: int
    verify: Callable[[Sequence[Frame], Sequence[Frame]], Any] | None = None
    """Compares outputs of frames with the model's own library; None if that is not to be done."""
    strict: bool = False
    """True if a library that takes no frame is an error."""

    def run(self) -> FrameTrial:
        """Return the first frame's outcome with comparable outputs.

        - a frame that the model and its library take, with outputs that are finite, is compared;
        - of frames with outputs that overflow, the first is compared, if there is no other;
        - a frame that the library does not take is for the stages alone.

        Raises `BuildError` if outputs differ; `ModelError` if no frame can be compared with the library, and the search
        is strict.
        """
        wild: FrameTrial | None = None
        untaken: FrameTrial | None = None
        failure = ""
        for frame in self._suitable_frames():
            try:
                trial = FrameTrial(frame, self.model.outputs(frame.arrays))
            except BuildError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever an operator raises of values that it does not take
                failure = failure or reason(error)
                continue
            if not is_tame(trial.outputs or {}):
                wild = wild or trial
                continue
            trial = self._verified(trial)
            if not trial.unverified:
                return trial
            untaken = untaken or trial
        if wild and not untaken:
            untaken = self._verified(wild)
        if untaken is None:
            # It fails aloud on frames like these, whatever the library does: a shape may depend on values.
            untaken = FrameTrial(unverified=f"{self.graph.name!r} takes no random frame ({failure})")
        if not untaken.unverified:
            return untaken
        unverified = f"{untaken.unverified}; {REMEDY}"
        if self.strict:
            raise ModelError(unverified)
        return replace(untaken, unverified=unverified)

    def _suitable_frames(self) -> Iterator[TrialFrame]:
        for frame in candidates(self.graph.inputs, self.seed):
            # The library first: a large integer may be an index, which not each kernel of ours bounds.
            if not frame.description or not self.verify or _library(self.graph, frame.arrays):
                yield frame

    def _verified(self, trial: FrameTrial) -> FrameTrial:
        if self.verify is None or trial.frame is None or trial.outputs is None:
            return trial
        try:
            return replace(trial, verification=self.verify([trial.frame.arrays], [trial.outputs]))
        except ModelError as error:
            return replace(trial, unverified=str(error))


def library_frame(graph: Graph, seed: int) -> Frame:
    """Return the first random frame accepted by a graph's libraries, else the usual."""
    frames = [trial.arrays for trial in candidates(graph.inputs, seed)]
    if ReferenceCheck(graph, Bounds()).obstacle:
        return frames[0]
    return next((frame for frame in frames if _library(graph, frame)), frames[0])


def _library(graph: Graph, frame: Frame) -> str:
    """Return the library accepting a frame, else empty."""
    try:
        return ReferenceCheck(graph, Bounds()).run(frame)[0]
    except ModelError:
        return ""
