"""``soc-pipeline demo``: boxes on made scenes, by a detector unsplit and in stages."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import pipeline
from pipeline.commands.shared import console, live, values, view
from pipeline.core.model_card import Preparation
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.observe.web import ViewServer
    from pipeline.scheduler.trace import Trace
    from pipeline.split.graph import Graph

HELP = "Find handwritten digits on pictures by a trained detector, and compare it unsplit and as a pipeline."
EXAMPLE = "soc-pipeline demo --stages 2 --output demo-output"

FPS = 10.0
"""Frames per second of the live view."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--stages", metavar="N", type=values.count, default=2, help="stages of the pipeline (default: 2)"
    )
    parser.add_argument(
        "--frames",
        metavar="N",
        type=values.count,
        help="frames per side and round (default: as many as take a second); of --view, frames to show (default: "
        "without end)",
    )
    parser.add_argument(
        "--output",
        metavar="PATH",
        type=Path,
        default=Path("demo-output"),
        help="folder of the pictures scene.png and timeline.png (default: demo-output), or the timeline's own name, "
        ".png or .svg, which the scene is put beside",
    )
    view.argument(parser)


def run(options: argparse.Namespace) -> int:
    """Draw boxes, then compare; or show scenes in a browser."""
    timeline_path = _timeline_path(options.output)
    with view.serve_view(options.view) as (server, trace):
        if server is None:
            _folder(timeline_path.parent)
        graph, bundle = _build(options.stages)
        if server is None:
            _draw(bundle, timeline_path.with_name("scene.png"))
            _compare(graph, bundle, options.frames, timeline_path)
        else:
            _show(bundle, server, trace, options.frames)
    return 0


def _timeline_path(output: Path) -> Path:
    """Return the timeline's path, or raise `InputError` for a suffix that is no picture's."""
    from pipeline.observe.timeline import image_format

    if not output.suffix or output.is_dir():
        return output / "timeline.png"
    image_format(output)
    return output


def _folder(folder: Path) -> None:
    """Make a folder, before anything is built for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to the folder {str(folder)!r}: {error.strerror}") from None


def _build(stages: int) -> tuple[Graph, Bundle]:
    from pipeline.demo.detector import FILE

    with console.progress("measuring the detector's operators") as step:
        graph = pipeline.read(FILE)
        plan = pipeline.plan(graph, board="host", stages=stages, measure=True)
        return graph, pipeline.build(graph, plan, progress=step)


def _draw(bundle: Bundle, path: Path) -> None:
    from pipeline.demo import detector

    result = detector.recognise(bundle, path)
    print(f"Boxes: {path} ({result.recognised} of {result.digits} digits recognised, {result.wrong} boxes wrong)")


def _compare(graph: Graph, bundle: Bundle, frames: int | None, path: Path) -> None:
    """Print rates and the fastest way, and draw the timeline."""
    from pipeline.commands.bench import show_comparison
    from pipeline.measure.comparison import compare
    from pipeline.observe import timeline
    from pipeline.scheduler.trace import Trace

    trace = Trace()
    with live.Display("comparing", keep=False) as display:
        watch = lambda running: display.watch(running.statistics)  # noqa: E731 - as bench's
        comparison = compare(graph, bundle, frames=frames, progress=display.step, watch=watch, trace=trace)
    stages = len(bundle.plan.stages)
    timeline.draw(trace.events(), path, title=f"Detector in {stages} stage{'s' if stages > 1 else ''}")
    show_comparison(comparison)
    fastest = max(comparison.variants, key=lambda variant: variant.frames_per_s)
    print(f"Fastest on this machine: {fastest.name}.", end=" ")
    if fastest is comparison.pipelined:
        ratios = (fastest.frames_per_s / side.frames_per_s for side in comparison.variants[:-1])
        print(f"It has {min(ratios):.2f} times the frames of the next one.")
    else:
        ratio = comparison.pipelined.frames_per_s / fastest.frames_per_s
        print(f"The pipeline has {ratio:.2f} times its frames; stages gain where processors differ, see docs/guide.md.")
    print(f"Timeline: {path}")


def _show(bundle: Bundle, server: ViewServer, trace: Trace | None, frames: int | None) -> None:
    """Stream scenes to the browser until the limit or an interrupt."""
    from pipeline.demo.detector import SceneSource
    from pipeline.io.frame_view import FrameView
    from pipeline.io.prepared_bundle import prepare_bundle
    from pipeline.io.result_reader import ResultReader, choose_card
    from pipeline.io.sinks.base import Sink
    from pipeline.io.stream import POLICIES, FrameStream
    from pipeline.scheduler.switch_interval import choose_interval

    card = choose_card(bundle.plan, bundle.card)
    with SceneSource(FPS) as source, live.Display("streaming") as display:
        prepared_bundle, geometry = prepare_bundle(bundle, source.pixels, card.preparation or Preparation())
        reader = ResultReader(bundle.plan, card)
        interval, policy = choose_interval(prepared_bundle.plan), POLICIES[source.live]
        with pipeline.load(prepared_bundle, admission=policy, switch_interval=interval, trace=trace) as running:
            display.watch(running.statistics)
            server.show(running, source.pixels.rgb, FrameView(reader, geometry))
            FrameStream(running, source, Sink(), limit=frames, reader=reader, geometry=geometry).run()
