"""Comparison: a running pipeline and the unsplit model, measured in turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pipeline.core.plan.stage_options import NO_OPTIONS, StageOptions
from pipeline.errors import InputError, PlanError
from pipeline.executor.bundle import Bundle
from pipeline.measure.throughput import Decode, Variant, VariantRun, Watch, turns
from pipeline.prediction.predict import predict

if TYPE_CHECKING:
    from pipeline.core.board.board import Board, Device
    from pipeline.core.plan.plan import Plan
    from pipeline.scheduler.trace import Trace
    from pipeline.split.graph import Graph

_DISTINCT = 4
"""Frames streamed in turns: a single one would stay in the caches."""


@dataclass(frozen=True)
class Comparison:
    """Results of a comparison."""

    model: str
    variants: tuple[Variant, ...]
    """The unsplit model on one core and on all cores of its device (if it has several), then the pipeline; the pipeline
    alone if there was only a bundle."""
    rounds: int
    """Rounds over which the medians are taken."""
    predicted_frames_per_s: float
    """Rate that the plan predicts for the pipeline; 0 if it predicts nothing."""
    measured: bool
    """True if that prediction rests on measured operators (True) or on estimates (False)."""
    decoded: Variant | None = None
    """The pipeline once more, with its outputs decoded."""

    @property
    def pipelined(self) -> Variant:
        """The pipeline."""
        return self.variants[-1]

    @property
    def bottleneck(self) -> str:
        """Name of the pipeline's busiest stage."""
        return max(self.pipelined.stages, key=lambda stage: stage.busy).name

    @property
    def ratio(self) -> float | None:
        """Pipeline's frame rate over one core's unsplit rate; None without model."""
        return self.pipelined.frames_per_s / self.variants[0].frames_per_s if len(self.variants) > 1 else None


def compare(  # noqa: PLR0913 - all but the first two by keyword
    graph: Graph | None,
    bundle: Bundle,
    *,
    frames: int | None = None,
    rounds: int = 3,
    progress: Callable[[str], None] = lambda _: None,
    watch: Watch = lambda _: None,
    trace: Trace | None = None,
    common_trace: Trace | None = None,
    decode: Decode | None = None,
) -> Comparison:
    """Stream random frames through the unsplit model and the pipeline.

    The variants take turns, so that whatever else the machine does meets all of them. Raises `InputError` if there are
    too few frames or rounds; `PlanError` if the bundle was built from another graph; `StageError` if a stage fails on a
    frame. `frames` are those of a variant in each round, at least 2; by default as many as take a second, at least 4.
    Without a graph only the pipeline is measured. `progress` gets a text for each step, `watch` each pipeline that
    begins to stream. `trace` gets the events of one more round, which is not counted, `common_trace` those of all
    counted ones. With `decode`, of outputs by name into a result, the pipeline is measured once more.
    """
    _check(graph, bundle, frames, rounds)
    variants: list[tuple[str, Bundle]] = []
    if graph is not None:
        progress("building the unsplit model")
        plan = bundle.plan
        variants = build_unsplit(graph, plan.board, plan.board.device(plan.stages[0].device), plan.stages[0].options)
    # Last, where `Comparison.pipelined` looks for it.
    variants.append((_pipeline_name(bundle), bundle))
    runs = [VariantRun(name, variant, watch, common_trace) for name, variant in variants]
    pipelined = runs[-1]
    if decode is not None:
        runs.append(VariantRun(f"{pipelined.name}, decoded", bundle, watch, common_trace, decode))
    # Each variant chooses here how many frames take a round, unless the caller says it.
    progress(f"warming up {runs[0].name}")
    # The same ones for all variants, so that no difference comes from the data.
    inputs = runs[0].find_inputs(_DISTINCT, frames)
    for run in runs[1:]:
        progress(f"warming up {run.name}")
        run.warm_up(inputs, frames)
    for number, ordered_runs in enumerate(turns(runs, rounds), 1):
        for run in ordered_runs:
            progress(f"round {number} of {rounds}: {run.name}")
            run.stream(inputs)
    if trace is not None:
        progress("tracing")
        # A round of its own, since noting events takes time, which the others must not have.
        pipelined.trace(inputs, trace)
    plan = bundle.plan
    # Once the pipeline is full, its slowest stage sets the pace.
    predicted_frames_per_s = predict(plan).frames_per_s
    results = [run.result() for run in runs]
    decoded = results.pop() if decode is not None else None
    return Comparison(plan.model, tuple(results), rounds, predicted_frames_per_s, plan.measured, decoded)


def _check(graph: Graph | None, bundle: Bundle, frames: int | None, rounds: int) -> None:
    if frames is not None and frames < 2:
        raise InputError(f"frames is {frames}; a rate needs at least 2")
    if rounds < 1:
        raise InputError(f"rounds is {rounds}; it must be at least 1")
    # The ratio of two different models would pass for a gain.
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


def build_unsplit(
    graph: Graph, board: Board, device: Device, options: StageOptions = NO_OPTIONS
) -> list[tuple[str, Bundle]]:
    """Build the unsplit model for one core of `device`, and all.

    Bundles have names, such as ``"unsplit, 2 cores"``.
    """
    # Late: a board that only measures a bundle has none of it.
    from pipeline.split.planning.planner import Planner

    variants = []
    # Its one device has to run all, wherever the model says that it belongs.
    graph = replace(graph, annotations=())
    # A build for several cores is slower on one of them than a build for that one.
    for cores in dict.fromkeys((device.cores[-1:], device.cores)):
        one_device_board = replace(board, devices=(replace(device, cores=cores),))
        plan = Planner(graph, one_device_board, options=options).plan(stages=1)
        # A planner leaves out cores that would not help; whether they do is the question here.
        plan = replace(plan, stages=(replace(plan.stages[0], cores=cores),))
        variants.append((f"unsplit, {_count(len(cores) or 1, 'core')}", build_unchecked(graph, plan)))
    return variants


def build_unchecked(graph: Graph, plan: Plan) -> Bundle:
    """Build a plan for measuring, without checking outputs, or raise `BuildError`."""
    from pipeline.executor.build import compile_plan
    from pipeline.export.stage_export import StageExport
    from pipeline.split import stage_parts

    sources = [StageExport(graph, part) for part in stage_parts.parts(graph, plan)]
    return Bundle(plan, compile_plan(plan, sources, progress=lambda _: None))
