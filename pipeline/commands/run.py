"""``soc-pipeline run``: stream frames from a camera, a recording or files through a bundle."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING, Any

import pipeline
from pipeline.commands import common, live, run_options, view
from pipeline.commands.run_options import arguments

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.io.sink import Sink
    from pipeline.io.source import Source
    from pipeline.io.streaming import Streamed
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.scheduler.statistics import Statistics
    from pipeline.web import ViewServer

__all__ = ["EXAMPLE", "HELP", "arguments", "run"]

HELP = "Stream frames from a camera, a recording or files through a bundle, and save what comes out, in order."
EXAMPLE = "soc-pipeline run model.bundle --source camera:/dev/video0 --fps 30 --sink 'out.mp4?show=label'"


def run(options: argparse.Namespace) -> int:
    """Check the options, stream, save and report."""
    # Where nothing is compiled, the small runtime starts faster and needs less memory.
    if not options.compile:
        os.environ.setdefault("TVM_USE_RUNTIME_LIB", "1")
    from pipeline.executor.bundle import Bundle
    from pipeline.io import prepare, sinks

    port, preparation = run_options.port(options.metrics), run_options.preparation(options)
    limit = None if options.frames is None else common.whole("--frames", options.frames)
    bundle = Bundle.load(options.bundle)
    with (
        view.serving(options.view) as (server, always),
        run_options.source(options, bundle.plan.inputs, preparation) as source,
    ):
        bundle, place = prepare.prepared(bundle, source.pixels, preparation)
        loading = run_options.pipeline_options(options, source, bundle.plan)
        if options.compile:
            loading |= {"on_new_shape": "compile", "model": options.compile}
        with (
            common.tracing(options.trace, bundle.plan) as trace,
            sinks.several(options.sink, bundle.plan.outputs, place) as sink,
        ):
            loading["trace"] = always if trace is None else trace
            statistics, streamed = _stream(bundle, source, sink, port=port, limit=limit, server=server, **loading)
    _report(statistics, streamed, options)
    # What was skipped is no failure, unless nothing else was there.
    return 1 if statistics.failed and not statistics.delivered else 0


def _stream(  # noqa: PLR0913 - all but the first three by keyword
    bundle: Bundle,
    source: Source,
    sink: Sink,
    *,
    port: int | None,
    limit: int | None,
    server: ViewServer | None,
    **options: Any,
) -> tuple[Statistics, Streamed]:
    from pipeline.io.streaming import Streaming

    with live.Display("streaming") as display, pipeline.load(bundle, **options) as running, _metrics(running, port):
        display.watch(running.statistics)
        if server is not None:
            server.show(running, source.pixels.rgb if source.pixels else None)
        skip = options["on_error"] == "skip"
        streamed = Streaming(running, source, sink, skip_failed=skip, limit=limit).run()
    return running.statistics(), streamed


def _metrics(running: Pipeline, port: int | None) -> contextlib.AbstractContextManager[object]:
    if port is None:
        return contextlib.nullcontext()
    from pipeline import metrics

    server = metrics.serve(running, port)
    common.notice(f"metrics: {server.url}")
    return server


def _report(statistics: Statistics, streamed: Streamed, options: argparse.Namespace) -> None:
    if options.json:
        facts = {field.name: getattr(statistics, field.name) for field in dataclasses.fields(statistics)}
        found = {"capture_latency_s": streamed.latency_s, "passed_over": streamed.passed_over}
        common.print_json(facts | found)
        return
    # Lines that went to standard output are results; this is about them.
    out = common.console() if "jsonl:-" not in options.sink else common.console(error=True)
    out.print(f"{statistics.delivered} frames, {statistics.frames_per_s:.1f} frames/s{_others(statistics, streamed)}")
    if statistics.delivered:
        times = (f"{name} {getattr(streamed.latency_s, name) * 1e3:.1f} ms" for name in ("p50", "p95", "p99"))
        out.print(f"Latency from capture: {', '.join(times)}")
    for what, path in (*(("Outputs", text) for text in options.sink), ("Trace", options.trace)):
        if path:
            out.print(f"{what}: {path}", soft_wrap=True)


def _others(statistics: Statistics, streamed: Streamed) -> str:
    """Return how the frames ended that were not delivered."""
    ends = {"failed": statistics.failed, "cancelled": statistics.cancelled}
    ends |= {f"dropped ({reason})": count for reason, count in statistics.dropped.items()}
    ends["passed over (a sink was behind)"] = streamed.passed_over
    return "".join(f", {count} {end}" for end, count in ends.items() if count)
