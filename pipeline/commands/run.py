"""``soc-pipeline run``: stream a camera, recording or files through a bundle."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pipeline
from pipeline.commands.shared import (
    applications,
    card_options,
    cluster,
    console,
    live,
    model_options,
    run_options,
    trace_option,
    view,
)
from pipeline.commands.shared.run_options import arguments
from pipeline.commands.shared.updates import Updates, check_folder
from pipeline.errors import InputError
from pipeline.system.service_manager import ready_service

if TYPE_CHECKING:
    from pipeline.cluster.fleet import ReplicaStatistics
    from pipeline.core.model_card import ModelCard
    from pipeline.executor.bundle import Bundle
    from pipeline.io.sinks.base import Sink
    from pipeline.io.sources.base import FrameSource
    from pipeline.io.stream import StreamSummary
    from pipeline.observe.web import ViewServer
    from pipeline.picture.pixels import Pixels
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.scheduler.statistics import Statistics

__all__ = ["EXAMPLE", "HELP", "arguments", "run"]

HELP = "Stream a camera, a recording or photos through a model or bundle: print, draw or save what comes out, in order."
EXAMPLE = "soc-pipeline run detector.onnx --source photo.jpg --sink boxes.jpg"


def run(options: argparse.Namespace) -> int:
    """Check the options, stream, save and report."""
    from pipeline.core.model_card import ModelCard, Preparation
    from pipeline.io.prepared_bundle import prepare_bundle
    from pipeline.io.result_reader import make_reader
    from pipeline.io.sinks import registry
    from pipeline.io.sinks.json_lines import SummaryLines

    # 1. Check what can be checked before anything is opened.
    check_folder(options)
    replicas = cluster.load_options(options)
    load = _make_loader(options, replicas)
    if len(options.source) > 1:
        return applications.run_sources(options, load)
    run_options.check_sources(options)
    for text in options.sink:
        registry.check_sink(text, allow_commands=True)
    # 2. Load the bundle, which a model may have to become first.
    bundle, origin = model_options.load_bundle(options, Updates(options, load).load_first)
    # Bundles of earlier versions have no card, and go on without a decoder.
    base = bundle.card or (None if origin == "bundle" else ModelCard())
    plan, card = bundle.plan, card_options.complete_card(options, bundle.plan, base)
    reader, preparation = make_reader(plan, card), card.preparation or Preparation()
    prints = reader is not None and not (options.sink or options.json)
    # What is on the command line is the user's own.
    facts = {"decoded": reader is not None, "notice": console.notice, "allow_commands": True}
    # 3. Open what frames come from and go to, and stream.
    with (
        view.serve_view(options.view) as (server, always),
        run_options.source(options, bundle, preparation) as source,
    ):
        bundle, geometry = prepare_bundle(bundle, source.pixels, preparation)
        loading: dict[str, Any] = {**run_options.pipeline_options(options, source, plan)}
        if options.compile:
            loading |= {"on_new_shape": "compile", "model": options.compile}
        updates = Updates(options, _make_version_loader(options, load, card, base, source.pixels))
        with (
            trace_option.tracing(options.trace, plan) as trace,
            registry.open_sinks(options.sink, plan.outputs, geometry, **facts) as sink,
        ):
            if base is not None:
                saves = bool(options.sink) or options.json or origin == "bundle"
                model_options.explain_decoder(plan, card, is_new=origin == "built", saves=saves)
            # A pipeline has one trace: a file that was asked for wins, and the page shows its events as well.
            loading["trace"] = always if trace is None else trace
            results = _stream(
                bundle,
                source,
                SummaryLines() if prints else sink,
                updates,
                options,
                server=server,
                replicas=replicas,
                loading=loading,
                reading={"reader": reader, "geometry": geometry},
                prints=prints,
            )
    # 4. Report. Lines that went to standard output are results; this is about them.
    out = sys.stderr if set(registry.STANDARD_OUTPUT) & set(options.sink) else sys.stdout
    statistics = results[0]
    _report(*results, updates, options, out=out)
    # What was skipped is no failure, unless nothing else was there.
    return 1 if statistics.failed and not statistics.delivered else 0


def _make_loader(options: argparse.Namespace, replicas: Mapping[str, Any]) -> Callable[[Path], Bundle]:
    """Return the function that loads a bundle, or raise `InputError` for options that exclude others."""
    from pipeline.executor.bundle import Bundle

    signature = options.require_signature
    if options.server:
        if options.device or options.watch or options.compile:
            raise InputError("--server leaves --device, --watch and --compile to the servers; see 'serve --run'")
        from pipeline.workflow.server_bundle import on_server

        return lambda path: on_server(path, options.server, signature)
    if replicas:
        from pipeline.executor.bundle_description import describe_bundle

        return lambda path: describe_bundle(path, signature)
    return lambda path: Bundle.load(path, dict(options.device), require_signature=signature)


def _make_version_loader(
    options: argparse.Namespace,
    load: Callable[[Path], Bundle],
    card: ModelCard,
    base: ModelCard | None,
    pixels: Pixels | None,
) -> Callable[[Path], Bundle]:
    """Return the function that loads a new version while frames stream; its card must be the same."""
    from pipeline.core.model_card import FIELDS, ModelCard, Preparation
    from pipeline.io.prepared_bundle import prepare_bundle

    def load_version(path: Path) -> Bundle:
        version = load(path)
        other = card_options.complete_card(options, version.plan, version.card or (base and ModelCard()))
        if changes := [name for name in FIELDS if getattr(other, name) != getattr(card, name)]:
            raise InputError(f"its card has another {', '.join(changes)}; start the command anew with it")
        return prepare_bundle(version, pixels, card.preparation or Preparation())[0]

    return load_version


def _stream(  # noqa: PLR0913 - each is one part of a stream
    bundle: Bundle,
    source: FrameSource,
    sink: Sink,
    updates: Updates,
    options: argparse.Namespace,
    *,
    server: ViewServer | None,
    replicas: Mapping[str, Any],
    loading: Mapping[str, Any],
    reading: Mapping[str, Any],
    prints: bool,
) -> tuple[Statistics, StreamSummary, Sequence[ReplicaStatistics]]:
    from pipeline.io.frame_view import FrameView
    from pipeline.io.stream import FrameStream

    with (
        # A table that is drawn again and again would tear lines on the same terminal.
        live.Display("streaming", hidden=prints and sys.stdout.isatty()) as display,
        _load(bundle, replicas, loading) as running,
        _metrics(running, options.metrics),
    ):
        display.watch(running.statistics)
        if server is not None:
            # Cameras send formats that no browser shows.
            server.show(running, source.pixels.rgb if source.pixels else None, FrameView(**reading))
        # The pipeline goes on after a frame that failed; the stream has to know it, too.
        skip = loading["supervision"].on_error == "skip"
        with ready_service(), updates.watch(running, bundle):
            summary = FrameStream(running, source, sink, skip_failed=skip, limit=options.frames, **reading).run()
        counts = getattr(running, "replicas", ())
    return running.statistics(), summary, counts


def _load(bundle: Bundle, replicas: Mapping[str, Any], loading: Mapping[str, Any]) -> Pipeline:
    if not replicas:
        return pipeline.load(bundle, **loading)
    from pipeline.cluster import load

    return load(bundle, **replicas, **loading)


def _metrics(running: Pipeline, port: int | None) -> contextlib.AbstractContextManager[object]:
    if port is None:
        return contextlib.nullcontext()
    from pipeline.observe import prometheus

    server = prometheus.serve(running, port)
    console.notice(f"metrics: {server.url}")
    return server


def _report(  # noqa: PLR0913 - each is one part of what happened
    statistics: Statistics,
    summary: StreamSummary,
    replicas: Sequence[ReplicaStatistics],
    updates: Updates,
    options: argparse.Namespace,
    *,
    out: TextIO,
) -> None:
    counts = None if updates.counts is None else dataclasses.asdict(updates.counts)
    if options.json:
        facts = {field.name: getattr(statistics, field.name) for field in dataclasses.fields(statistics)}
        capture = {"capture_latency_s": summary.latency_s, "passed_over": summary.passed_over}
        capture |= {"nan_inputs": summary.nan_inputs, "nan_outputs": summary.nan_outputs}
        facts |= {"replicas": list(map(dataclasses.asdict, replicas))} if replicas else {}
        console.print_json(facts | capture | ({} if counts is None else {"updates": counts}), out)
        return
    ends = _other_ends(statistics, summary)
    noun = "frame" if statistics.delivered == 1 else "frames"
    print(f"{statistics.delivered} {noun}, {statistics.frames_per_s:.1f} frames/s{ends}", file=out)
    if statistics.delivered:
        times = (f"{name} {getattr(summary.latency_s, name) * 1e3:.1f} ms" for name in ("p50", "p95", "p99"))
        print(f"Latency from capture: {', '.join(times)}", file=out)
    if note := live.interpreter_note({stage.name: stage.interpreter_share for stage in statistics.stages}):
        print(note, file=out)
    if counts is not None:
        ends = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
        print(f"Updates: {ends}", file=out)
    if replicas:
        shares = ", ".join(str(replica.frames) for replica in replicas)
        print(
            f"Replicas: {len(replicas)}, with {shares} frames; lost {sum(replica.losses for replica in replicas)}",
            file=out,
        )
    for title, path in (*(("Outputs", text) for text in options.sink), ("Trace", options.trace)):
        if path:
            print(f"{title}: {path}", file=out)


def _other_ends(statistics: Statistics, summary: StreamSummary) -> str:
    """List the outcomes of undelivered frames."""
    ends = {"failed": statistics.failed, "cancelled": statistics.cancelled}
    ends |= {f"dropped ({reason})": count for reason, count in statistics.dropped.items()}
    ends["passed over (a sink was behind)"] = summary.passed_over
    ends |= {"with NaN in their inputs": summary.nan_inputs, "with NaN in their outputs": summary.nan_outputs}
    return "".join(f", {count} {end}" for end, count in ends.items() if count)
