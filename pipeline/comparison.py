"""Comparison: a running pipeline beside the unsplit model, measured in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipeline import api
from pipeline.errors import InputError, PlanError
from pipeline.sides import Run, Side, Watch, random_frames

if TYPE_CHECKING:
    from pipeline.board import Board, Device
    from pipeline.executor.bundle import Bundle
    from pipeline.scheduler.trace import Trace
    from pipeline.split.graph import Graph

_DISTINCT = 4


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Attributes
    ----------
    model : str
    sides : tuple of Side
        The unsplit model on one core and on all cores of its device (if it has several), then the pipeline; the
        pipeline alone if there was only a bundle.
    rounds : int
        How many rounds the medians are taken over.
    predicted_frames_per_s : float
        What the plan says of the pipeline; 0 if it says nothing.
    measured : bool
        Whether that prediction rests on measured operators (True) or on estimates (False).
    """

    model: str
    sides: tuple[Side, ...]
    rounds: int
    predicted_frames_per_s: float
    measured: bool

    @property
    def pipelined(self) -> Side:
        """The pipeline."""
        return self.sides[-1]

    @property
    def bottleneck(self) -> str:
        """Name of the pipeline's busiest stage."""
        return max(self.pipelined.stages, key=lambda stage: stage.busy).name

    @property
    def ratio(self) -> float | None:
        """Frames per second of the pipeline over those of the unsplit model on one core; None without a model."""
        return self.pipelined.frames_per_s / self.sides[0].frames_per_s if len(self.sides) > 1 else None


def compare(  # noqa: PLR0913 - all but the first two by keyword
    graph: Graph | None,
    bundle: Bundle,
    *,
    frames: int | None = None,
    rounds: int = 3,
    progress: Callable[[str], None] = lambda _: None,
    watch: Watch = lambda _: None,
    trace: Trace | None = None,
    always: Trace | None = None,
) -> Comparison:
    """Stream random frames through the unsplit model and through the pipeline.

    The sides take turns, so that whatever else the machine does meets all of them.

    Parameters
    ----------
    graph : Graph or None
        The model that the bundle was built from; without it only the pipeline is measured.
    bundle : Bundle
        The pipeline.
    frames : int, optional
        How many frames a side streams in each round, at least 2; by default as many as take a second, at least 4.
    rounds : int
        At least 1.
    progress : callable, optional
        Told what is being done.
    watch : callable, optional
        Given each pipeline that begins to stream.
    trace : Trace, optional
        Where to note the events of one more round of the pipeline, which is not counted.
    always : Trace, optional
        Where to note those of all counted rounds, for whoever watches.

    Raises
    ------
    InputError
        If there are too few frames or rounds.
    PlanError
        If the bundle was built from another graph.
    StageError
        If a stage fails on a frame.
    """
    _check(graph, bundle, frames, rounds)
    sides = []
    if graph is not None:
        progress("building the unsplit model")
        plan = bundle.plan
        sides = unsplit(graph, plan.board, plan.board.device(plan.stages[0].device))
    runs = [Run(name, each, watch, always) for name, each in (*sides, (_pipeline_name(bundle), bundle))]
    inputs = random_frames(bundle.plan.inputs, _DISTINCT)
    for run in runs:
        progress(f"warming up {run.name}")
        run.warm_up(inputs, frames)
    for number in range(rounds):
        # Every other time in reverse, so that none always follows the same one.
        for run in runs[:: -1 if number % 2 else 1]:
            progress(f"round {number + 1} of {rounds}: {run.name}")
            run.stream(inputs)
    if trace is not None:
        progress("tracing")
        runs[-1].trace(inputs, trace)
    plan = bundle.plan
    predicted = 1 / plan.slowest if plan.slowest else 0.0
    return Comparison(plan.model, tuple(run.result() for run in runs), rounds, predicted, plan.measured)


def _check(graph: Graph | None, bundle: Bundle, frames: int | None, rounds: int) -> None:
    if frames is not None and frames < 2:
        raise InputError(f"frames is {frames}; a rate needs at least 2")
    if rounds < 1:
        raise InputError(f"rounds is {rounds}; it must be at least 1")
    if graph is not None and graph.digest != bundle.plan.digest:
        raise PlanError(
            f"the bundle is of another model ({bundle.plan.model!r}) than {graph.name!r}, or of another version of it; "
            "build it again"
        )


def _pipeline_name(bundle: Bundle) -> str:
    stages = bundle.plan.stages
    cores = len({core for stage in stages for core in stage.cores})
    return f"{_count(len(stages), 'stage')}, {_count(cores, 'core')}" if cores else _count(len(stages), "stage")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def unsplit(graph: Graph, board: Board, device: Device) -> list[tuple[str, Bundle]]:
    """Build the model in one piece for one core of `device`, and for all its cores if it has several.

    Returns
    -------
    list of (str, Bundle)
        Each with its name, such as ``"unsplit, 2 cores"``.
    """
    sides = []
    # A build for several cores is slower on one of them than a build for that one.
    for cores in dict.fromkeys((device.cores[-1:], device.cores)):
        narrowed = replace(board, devices=(replace(device, cores=cores),))
        bundle = api.build(graph, api.plan(graph, narrowed, stages=1), check=False)
        sides.append((f"unsplit, {_count(len(cores) or 1, 'core')}", bundle))
    return sides
