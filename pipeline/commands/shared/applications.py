"""Running applications, of a file or of ``run`` with several sources."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pipeline.commands.shared import card_options, console, model_options, run_options, view
from pipeline.errors import InputError, reason

if TYPE_CHECKING:
    from pathlib import Path

    from pipeline.app.application import App
    from pipeline.app.books import Book
    from pipeline.app.running_app import RunningApp
    from pipeline.executor.bundle import Bundle

_MODEL = "model"

_OTHERS = ("admission", "cluster", "compile", "deadline", "metrics", "trace", "waiting", "watch")
"""Options of ``run`` that belong to one stream."""


def run(options: argparse.Namespace, app: App | str, **keywords: Any) -> int:
    """Run an application until its streams end, and print its books; return the exit status."""
    import pipeline

    with (
        view.serve_view(options.view) as (server, _),
        pipeline.load_app(
            app, on_error=options.on_error, limit=options.frames, notice=console.notice, **keywords
        ) as running,
    ):
        if server is not None:
            from pipeline.app.app_view import AppView

            server.watch(AppView(running))
        interrupted = _stream(running)
    books, crops = running.statistics(), running.crop_books.snapshot()
    if running.first_failure is not None:
        console.notice(f"a frame failed: {reason(running.first_failure)}")
    if options.json:
        console.print_json({"streams": _facts(books), "crops": _facts(crops), "interrupted": interrupted})
    else:
        for name, book in (*books.items(), *crops.items()):
            print(f"{name}: {_describe(book, 'crops' if name in crops else 'frames')}")
    has_failed = any(book.failed for book in books.values())
    return 1 if has_failed and not any(book.delivered for book in books.values()) else 0


def run_sources(options: argparse.Namespace, load: Callable[[Path], Bundle]) -> int:
    """Run one model on several sources, as an application of them."""
    from pipeline.app.application import App
    from pipeline.app.nodes import Model, Node, SinkNode, Stream
    from pipeline.core.model_card import ModelCard
    from pipeline.io.sinks.json_lines import SummaryLines

    if given := [name for name in _OTHERS if getattr(options, name)]:
        raise InputError(f"--{given[0]} is for one source; {len(options.source)} are given")
    if len(options.stage_timeout) > 1 or any(name for name, _ in options.stage_timeout):
        raise InputError("--stage-timeout of several sources gives one limit for all stages")
    pace = {"fps": options.fps, "speed": options.speed, "reconnect": options.reconnect or 0.0}
    streams = {f"source{number}": Stream(source=text, **pace) for number, text in enumerate(options.source)}
    nodes: dict[str, Node] = {
        f"sink{number}": SinkNode(to=text, reads=(_MODEL,)) for number, text in enumerate(options.sink)
    }
    prints = not (options.sink or options.json)
    if prints:
        nodes["lines"] = SinkNode(to="-", reads=(_MODEL,))
    timeout = next((seconds for _, seconds in options.stage_timeout), None)
    # Before the model is built: a sink that cannot take several streams is told at once, as is a source that cannot be.
    app = App(streams, {_MODEL: Model(file=options.bundle, stage_timeout=timeout), **nodes})
    run_options.check_sources(options)
    bundle, _ = model_options.load_bundle(options, load)
    bundle.card = card_options.complete_card(options, bundle.plan, bundle.card or ModelCard())
    return run(options, app, bundles={_MODEL: bundle}, sinks={"lines": SummaryLines()} if prints else None)


def _stream(app: RunningApp) -> bool:
    """Run the streams; return True after the user's interrupt."""
    from pipeline.scheduler.switch_interval import SwitchInterval, choose_interval

    # All models share the interpreter, so that the shortest stage of any decides.
    intervals = [choose_interval(running.plan) for running in app.pipelines.values()]
    interval = SwitchInterval(min(intervals, default=None))
    try:
        app.run()
    except KeyboardInterrupt:
        return True
    finally:
        interval.end()
    return False


def _facts(books: Mapping[str, Book]) -> dict[str, Any]:
    return {name: dataclasses.asdict(book) for name, book in books.items()}


def _describe(book: Book, noun: str) -> str:
    ends = {"failed": book.failed, "dropped": book.dropped, "cancelled": book.cancelled}
    return f"{book.delivered} {noun}" + "".join(f", {count} {end}" for end, count in ends.items() if count)
