"""``soc-pipeline app``: applications of several streams, models, trackers and sinks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pipeline.commands.shared import console, values, view
from pipeline.errors import reason

if TYPE_CHECKING:
    from pipeline.app.application import App
    from pipeline.app.books import Book
    from pipeline.app.running_app import RunningApp

HELP = "Run an application: streams, models on their crops, trackers, triggers and sinks, out of one file."
EXAMPLE = "soc-pipeline app run people.toml"

_ACTIONS = {
    "check": "Check an application's file: names, circles and conditions.",
    "draw": "Print what reads what.",
    "run": "Run the application until its streams end.",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions, and their options."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, text in _ACTIONS.items():
        action = actions.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"example:\n  soc-pipeline app {name} people.toml",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        action.add_argument("file", metavar="FILE", help="the application, as TOML")
        action.set_defaults(action=globals()[f"_{name}"])
        if name == "run":
            _run_arguments(action)


def _run_arguments(action: argparse.ArgumentParser) -> None:
    action.add_argument("--frames", metavar="N", type=values.count, help="end after N frames of each stream")
    action.add_argument("--on-error", choices=("skip", "stop"), default="skip", help="what a frame that fails ends")
    action.add_argument(
        "--allow-commands",
        action="store_true",
        help="let the file start commands: exec:, gst: and functions; a file of somebody else's could do anything",
    )
    action.add_argument("--allow-network", action="store_true", help="let the file send events to other machines")
    action.add_argument("--json", action="store_true", help="print the books as JSON")
    view.argument(action)


def run(options: argparse.Namespace) -> int:
    """Run the action."""
    status: int | None = options.action(options)
    return status or 0


def _check(options: argparse.Namespace) -> None:
    from pipeline.app.app_file import read_app

    app = read_app(options.file)
    print(f"{options.file}: {len(app.streams)} streams, {len(app.nodes)} nodes; nothing is wrong")


def _draw(options: argparse.Namespace) -> None:
    from pipeline.app.app_file import read_app

    for row in _rows(read_app(options.file)):
        print("  ".join(row).rstrip())


def _rows(app: App) -> list[list[str]]:
    """Return a row for each stream and node: name, kind, what it is, and what it reads."""
    from pipeline.app.nodes import Model

    rows = [[name, *app.describe(name), ""] for name in app.streams]
    for name in app.order:
        node = app.nodes[name]
        each = f" for each of its {node.for_each}" if isinstance(node, Model) and node.for_each else ""
        when = f" when {node.when}" if node.when else ""
        rows.append([name, *app.describe(name), f"reads {', '.join(app.reads(name))}{each}{when}"])
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [[*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]] for row in rows]


def _run(options: argparse.Namespace) -> int:
    import pipeline

    with (
        view.serve_view(options.view) as (server, _),
        pipeline.load_app(
            options.file,
            on_error=options.on_error,
            limit=options.frames,
            allow_commands=options.allow_commands,
            allow_network=options.allow_network,
            notice=console.notice,
        ) as app,
    ):
        if server is not None:
            from pipeline.app.app_view import AppView

            server.watch(AppView(app))
        interrupted = _stream(app)
    books, crops = app.statistics(), app.crop_books.snapshot()
    if app.first_failure is not None:
        console.notice(f"a frame failed: {reason(app.first_failure)}")
    if options.json:
        console.print_json({"streams": _facts(books), "crops": _facts(crops), "interrupted": interrupted})
    else:
        for name, book in (*books.items(), *crops.items()):
            print(f"{name}: {_describe(book, 'crops' if name in crops else 'frames')}")
    has_failed = any(book.failed for book in books.values())
    return 1 if has_failed and not any(book.delivered for book in books.values()) else 0


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


def _facts(books: Any) -> dict[str, Any]:
    import dataclasses

    return {name: dataclasses.asdict(book) for name, book in books.items()}


def _describe(book: Book, noun: str) -> str:
    ends = {"failed": book.failed, "dropped": book.dropped, "cancelled": book.cancelled}
    return f"{book.delivered} {noun}" + "".join(f", {count} {end}" for end, count in ends.items() if count)
