"""Demo: streams held-out images unsplit and pipelined, for comparison."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import pipeline
from pipeline.comparison.compare import compare_output, overall
from pipeline.demo import digits, network
from pipeline.errors import InputError
from pipeline.measure.comparison import build_unsplit
from pipeline.observe import timeline
from pipeline.scheduler.trace import Trace

OUTPUT = Path("demo-output/timeline.png")
"""Default file of the picture."""

BATCH = 10
"""Images in a frame: one digit is too little work for the time of a stage to be seen beside that of a hop."""

ROUNDS = 4
"""Default rounds over the held-out images."""

CHUNKS = 6
"""Turns of a variant, so that what disturbs the machine meets all of them."""

WARM_UP = 8
"""Frames before the first measured one, which first touch the memory that later ones use again."""

Report = Callable[[str, float], None]


@dataclass(frozen=True)
class DemoVariantResult:
    """Results of the demo for one variant.

    Attributes
    ----------
    name : str
        Name of the variant, such as ``"unsplit, 1 core"``.
    accuracy : float
        Share of the images whose largest logit is the label's.
    frames_per_s : float
        Median of the chunks.
    """

    name: str
    accuracy: float
    frames_per_s: float


@dataclass(frozen=True)
class DemoResult:
    """Results of the demo.

    Attributes
    ----------
    frames : int
        Frames streamed through each variant, of `BATCH` images each.
    unsplit : tuple of DemoVariantResult
        The unsplit model on one core, and on all cores if there are several.
    pipelined : DemoVariantResult
    largest_difference, largest_value : float
        Largest difference between the logits of the pipeline and of any other variant, and the largest logit itself.
    picture : Path
        The timeline.
    """

    frames: int
    unsplit: tuple[DemoVariantResult, ...]
    pipelined: DemoVariantResult
    largest_difference: float
    largest_value: float
    picture: Path

    def ratio(self, variant: DemoVariantResult) -> float:
        """Return the pipeline's rate relative to a variant's."""
        return self.pipelined.frames_per_s / variant.frames_per_s


@dataclass
class DemoVariant:
    """Variant: a running pipeline, its answers, and its pace per chunk."""

    name: str
    running: Any
    logits: list[Any] = field(default_factory=list)
    paces: list[float] = field(default_factory=list)

    def stream(self, images: Any) -> None:
        """Stream a chunk, recording answers and frames per second."""
        begin = time.perf_counter()
        answers = list(self.running.map(images))
        self.paces.append(len(images) / (time.perf_counter() - begin))
        self.logits.extend(answers)

    def result(self, labels: Any) -> DemoVariantResult:
        """Return the accuracy and the median pace."""
        # Axis 2 has the classes, behind frames and images.
        accuracy = float(np.mean(np.stack(self.logits).argmax(2) == labels))
        return DemoVariantResult(self.name, accuracy, statistics.median(self.paces))


def run(output: Path = OUTPUT, frames: int | None = None, stages: int = 2) -> DemoResult:
    """Stream images through all variants and draw the timeline to `output`.

    The variants take turns, chunk by chunk, so that whatever else the machine does meets all.

    Parameters
    ----------
    output : Path
        The picture to write, PNG or SVG by its suffix.
    frames : int, optional
        Frames of `BATCH` images; by default all 450 held-out images, four times.
    stages : int
        Into how many stages the model is cut.

    Raises
    ------
    InputError
        If `frames` is less than 1 or the picture's suffix is unknown.
    PlanError
        If the model cannot be cut into so many stages.
    MissingExtra
        If the extra ``demo`` is not installed.
    """
    # A wrong suffix is refused before the model is built, not after.
    timeline.image_format(output)
    images, labels = _frames(frames)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=1.0)
        variants, trace = _stream(images, stages, _reporter(progress, task))
    # The trace has the last chunk alone.
    timeline.draw(trace.events(), output, title=f"Handwritten digits through {_count(stages)}")
    return _compare(variants, labels, output)


def show(result: DemoResult) -> None:
    """Print the comparison as a table, with the picture's path."""
    console = Console()
    title = f"{result.frames} frames of {BATCH} handwritten digits, held out in training"
    table = Table(title=title, title_justify="left")
    for heading in ("", "accuracy", "frames/s"):
        table.add_column(heading, justify="left" if not heading else "right")
    for variant in (*result.unsplit, result.pipelined):
        table.add_row(variant.name, f"{variant.accuracy:.2%}", f"{variant.frames_per_s:.1f}")
    console.print(table)
    for variant in result.unsplit:
        console.print(f"Pipelined over {variant.name}: {result.ratio(variant):.2f} times the frames.")
    difference, value = result.largest_difference, result.largest_value
    console.print(f"Largest difference of any output: {difference:.2g} (the largest output is {value:.3g}).")
    console.print(f"Timeline: {result.picture}", soft_wrap=True, highlight=False)


def _frames(count: int | None) -> tuple[Any, Any]:
    """Return frames [N, batch, 1, height, width] and labels [N, batch]."""
    if count is not None and count < 1:
        raise InputError(f"frames is {count}; the demo needs at least 1")
    images, labels = digits.held_out()
    frames, answers = images.reshape(-1, BATCH, *images.shape[2:]), labels.reshape(-1, BATCH)
    # Over and over in the same order, so that each image is counted equally often.
    indices = np.arange(ROUNDS * len(frames) if count is None else count) % len(frames)
    return frames[indices], answers[indices]


def _graph() -> Any:
    # The shipped file takes one image, and a frame of the demo has several.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / network.FILE.name
        network.save_with_batch(path, BATCH)
        return pipeline.read(path)


def _stream(images: Any, stages: int, report: Report) -> tuple[list[DemoVariant], Trace]:
    """Return the variants, pipeline last, and its trace of the last chunk."""
    report("reading and planning", 0.02)
    graph = _graph()
    plan = pipeline.plan(graph, board="host", stages=stages, measure=True)
    report("building the unsplit model", 0.1)
    bundles = build_unsplit(graph, plan.board, plan.board.devices[0])
    report(f"building {_count(stages)}", 0.25)
    bundles.append((f"pipeline of {_count(stages)}", pipeline.build(graph, plan)))
    trace = Trace()
    with ExitStack() as stack:
        # Only the pipeline's own stages are to be seen in the picture.
        traces = [None] * (len(bundles) - 1) + [trace]
        variants = [
            DemoVariant(name, stack.enter_context(pipeline.load(bundle, trace=variant_trace)))
            for (name, bundle), variant_trace in zip(bundles, traces, strict=True)
        ]
        for variant in variants:
            list(variant.running.map(itertools.islice(itertools.cycle(images), WARM_UP)))
        for share, chunk in _chunks(images):
            report("streaming", 0.45 + 0.55 * share)
            # One chunk is a continuous stream; the pause before it would be a gap in the picture.
            trace.clear()
            for variant in variants:
                variant.stream(chunk)
    return variants, trace


def _chunks(images: Any) -> Iterator[tuple[float, Any]]:
    # Fewer frames than chunks would leave some of them empty.
    for index, chunk in enumerate(np.array_split(images, min(CHUNKS, len(images)))):
        yield index / CHUNKS, chunk


def _compare(variants: Sequence[DemoVariant], labels: Any, picture: Path) -> DemoResult:
    # Against each of the others, since a build for several cores may have kernels of its own.
    *baselines, pipeline_logits = (np.stack(variant.logits) for variant in variants)
    difference = overall(compare_output(pipeline_logits, logits, "the unsplit model") for logits in baselines)
    *unsplit_results, result = (variant.result(labels) for variant in variants)
    return DemoResult(
        frames=len(labels),
        unsplit=tuple(unsplit_results),
        pipelined=result,
        largest_difference=difference.largest_error,
        largest_value=difference.largest_value,
        picture=picture,
    )


def _count(stages: int) -> str:
    return "1 stage" if stages == 1 else f"{stages} stages"


def _reporter(progress: Progress, task: Any) -> Report:
    return lambda text, done: progress.update(task, description=text, completed=done)
