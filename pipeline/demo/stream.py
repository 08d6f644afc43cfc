"""The demo: streams the held-out images through the unsplit model and the pipeline, and compares the two."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import pipeline
from pipeline import timeline
from pipeline.demo import digits, network
from pipeline.errors import InputError
from pipeline.scheduler.trace import Trace

OUTPUT = Path("demo-output/timeline.png")
"""Where the picture goes unless the caller says otherwise."""

BATCH = 10
"""Images in a frame: one digit is too little work for the time of a stage to be seen beside that of a hop."""

ROUNDS = 4
"""How often the held-out images are streamed by default."""

CHUNKS = 6
WARM_UP = 8

Report = Callable[[str, float], None]


@dataclass(frozen=True)
class DemoResult:
    """What the demo found.

    Attributes
    ----------
    frames : int
        Frames streamed through each side, of `BATCH` images each.
    stages : int
        Stages of the pipeline.
    accuracy_unsplit, accuracy_pipelined : float
        Share of the images whose largest logit is the label's.
    largest_difference, largest_value : float
        Between the two sides' logits, and the largest logit itself.
    unsplit_frames_per_s, pipelined_frames_per_s : float
        Median of the chunks.
    ratio : float
        Pipelined over unsplit, of these medians.
    picture : Path
        The timeline.
    """

    frames: int
    stages: int
    accuracy_unsplit: float
    accuracy_pipelined: float
    largest_difference: float
    largest_value: float
    unsplit_frames_per_s: float
    pipelined_frames_per_s: float
    ratio: float
    picture: Path


@dataclass
class Side:
    """One of the two ways to compute: a running pipeline, its answers so far, and the pace of each chunk."""

    running: Any
    logits: list[Any] = field(default_factory=list)
    paces: list[float] = field(default_factory=list)

    def stream(self, images: Any) -> None:
        """Stream one chunk, and note its answers and its frames per second."""
        begin = time.perf_counter()
        answers = list(self.running.map(images))
        self.paces.append(len(images) / (time.perf_counter() - begin))
        self.logits.extend(answers)


def run(output: Path = OUTPUT, frames: int | None = None, stages: int = 2) -> DemoResult:
    """Stream images through both sides, draw the timeline to `output`, and return what was found.

    The two sides take turns, chunk by chunk, so that whatever else the machine does meets both.

    Parameters
    ----------
    output : Path
        The picture to write, PNG or SVG by its suffix.
    frames : int, optional
        How many frames of `BATCH` images; by default all 450 held-out images, four times.
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
    # Found out before the model is built, not after.
    timeline.image_format(output)
    images, labels = _frames(frames)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=1.0)
        unsplit, pipelined, trace = _stream(images, stages, _reporter(progress, task))
    timeline.draw(trace.events(), output, title=f"Handwritten digits through {_count(stages)}")
    return _compare(unsplit, pipelined, labels, stages, output)


def show(result: DemoResult, console: Console | None = None) -> None:
    """Print the comparison as a table, and name the picture."""
    console = console or Console()
    title = f"{result.frames} frames of {BATCH} handwritten digits, held out in training"
    table = Table(title=title, title_justify="left")
    for heading in ("", "accuracy", "frames/s"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("unsplit model", f"{result.accuracy_unsplit:.2%}", f"{result.unsplit_frames_per_s:.1f}")
    name = f"pipeline of {_count(result.stages)}"
    table.add_row(name, f"{result.accuracy_pipelined:.2%}", f"{result.pipelined_frames_per_s:.1f}")
    console.print(table)
    console.print(f"Pipelined over unsplit: {result.ratio:.2f} times the frames.")
    difference, value = result.largest_difference, result.largest_value
    console.print(f"Largest difference of any output: {difference:.2g} (the largest output is {value:.3g}).")
    console.print(f"Timeline: {result.picture}", soft_wrap=True, highlight=False)


def _frames(count: int | None) -> tuple[Any, Any]:
    """Return frames [N, batch, 1, height, width] and labels [N, batch]."""
    if count is not None and count < 1:
        raise InputError(f"frames is {count}; the demo needs at least 1")
    images, labels = digits.held_out()
    frames, answers = images.reshape(-1, BATCH, *images.shape[2:]), labels.reshape(-1, BATCH)
    chosen = np.arange(ROUNDS * len(frames) if count is None else count) % len(frames)
    return frames[chosen], answers[chosen]


def _graph() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / network.FILE.name
        network.save_with_batch(path, BATCH)
        return pipeline.read(path)


def _stream(images: Any, stages: int, report: Report) -> tuple[Side, Side, Trace]:
    report("reading and planning", 0.02)
    graph = _graph()
    plans = [pipeline.plan(graph, board="host", stages=count, measure=True) for count in (1, stages)]
    bundles = []
    for plan, name, done in zip(plans, ("the unsplit model", _count(stages)), (0.05, 0.25), strict=True):
        report(f"building {name}", done)
        bundles.append(pipeline.build(graph, plan))
    trace = Trace()
    with pipeline.load(bundles[0]) as whole, pipeline.load(bundles[1], trace=trace) as parts:
        unsplit, pipelined = Side(whole), Side(parts)
        for side in (unsplit, pipelined):
            list(side.running.map(itertools.islice(itertools.cycle(images), WARM_UP)))
        for done, chunk in _chunks(images):
            report("streaming", 0.45 + 0.55 * done)
            # One chunk is a continuous stream; the pause before it would be a gap in the picture.
            trace.clear()
            for side in (unsplit, pipelined):
                side.stream(chunk)
    return unsplit, pipelined, trace


def _chunks(images: Any) -> Iterator[tuple[float, Any]]:
    for index, chunk in enumerate(np.array_split(images, min(CHUNKS, len(images)))):
        yield index / CHUNKS, chunk


def _compare(unsplit: Side, pipelined: Side, labels: Any, stages: int, picture: Path) -> DemoResult:
    expected, found = (np.stack(side.logits) for side in (unsplit, pipelined))
    slow, fast = (statistics.median(side.paces) for side in (unsplit, pipelined))
    return DemoResult(
        frames=len(labels),
        stages=stages,
        accuracy_unsplit=float(np.mean(expected.argmax(2) == labels)),
        accuracy_pipelined=float(np.mean(found.argmax(2) == labels)),
        largest_difference=float(np.abs(found - expected).max()),
        largest_value=float(np.abs(expected).max()),
        unsplit_frames_per_s=slow,
        pipelined_frames_per_s=fast,
        ratio=fast / slow,
        picture=picture,
    )


def _count(stages: int) -> str:
    return "1 stage" if stages == 1 else f"{stages} stages"


def _reporter(progress: Progress, task: Any) -> Report:
    return lambda text, done: progress.update(task, description=text, completed=done)
