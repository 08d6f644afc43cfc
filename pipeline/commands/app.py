"""``soc-pipeline app``: applications of several streams, models, trackers and sinks."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.commands.shared import applications, console, values, view

if TYPE_CHECKING:
    from pipeline.app.app_prediction import AppPrediction
    from pipeline.app.application import App

HELP = "Run an application: streams, models on their crops, trackers, triggers and sinks, out of one file."
EXAMPLE = "soc-pipeline app run people.toml"

_ACTIONS = {
    "check": "Check an application's file: all that 'run' would refuse before it opens a source.",
    "draw": "Print what reads what.",
    "simulate": "Predict rates and latencies of streams and models from the models' plans.",
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
        if name in ("check", "run"):
            _permission_arguments(action)
        if name == "run":
            _run_arguments(action)
        if name == "simulate":
            _simulate_arguments(action)


def _simulate_arguments(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--runs",
        metavar="MODEL=N",
        type=values.pair_number,
        action="append",
        default=[],
        help="runs of a model for a frame, in the mean: crops (default: 4), or the share of frames that pass a "
        "condition; may be repeated",
    )
    action.add_argument(
        "--fps",
        metavar="STREAM=N",
        type=values.pair_number,
        action="append",
        default=[],
        help="frames per second that a stream brings (default: the file's, else as many as are taken); may be repeated",
    )
    action.add_argument("--json", action="store_true", help="print the prediction as JSON")


def _permission_arguments(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--allow-commands",
        action="store_true",
        help="let the file start commands: exec:, gst: and functions; a file of somebody else's could do anything",
    )
    action.add_argument("--allow-network", action="store_true", help="let the file send events to other machines")


def _run_arguments(action: argparse.ArgumentParser) -> None:
    action.add_argument("--frames", metavar="N", type=values.count, help="end after N frames of each stream")
    action.add_argument("--on-error", choices=("skip", "stop"), default="skip", help="what a frame that fails ends")
    action.add_argument("--json", action="store_true", help="print the books as JSON")
    view.argument(action)


def run(options: argparse.Namespace) -> int:
    """Run the action."""
    status: int | None = options.action(options)
    return status or 0


def _check(options: argparse.Namespace) -> None:
    from pipeline.app.app_file import read_app
    from pipeline.app.load_app import check_app
    from pipeline.app.permissions import Permissions
    from pipeline.app.step_makers import StepMaker

    app, permissions = read_app(options.file), Permissions(options.allow_commands, options.allow_network)
    with console.progress("planning the models"):
        check_app(app, StepMaker(app, folder=Path(options.file).parent, permissions=permissions), permissions)
    print(f"{options.file}: streams: {len(app.streams)}, nodes: {len(app.nodes)}; nothing is wrong")


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
    return applications.run(
        options, options.file, allow_commands=options.allow_commands, allow_network=options.allow_network
    )


def _simulate(options: argparse.Namespace) -> None:
    import dataclasses

    from pipeline.app.app_file import read_app
    from pipeline.app.app_prediction import predict_app, read_plans

    app = read_app(options.file)
    plans = read_plans(app, Path(options.file).parent)
    prediction = predict_app(app, plans, runs=dict(options.runs), fps=dict(options.fps))
    if options.json:
        console.print_json(dataclasses.asdict(prediction))
    else:
        _show(app, prediction)


def _show(app: App, prediction: AppPrediction) -> None:
    """Print a table of the streams, one of the models, and what they share."""
    out = console.console()
    table = console.table(app.name or "streams", "stream", ">frames/s", ">latency ms", ">in line ms", "limited by")
    for name, stream in prediction.streams.items():
        times = (f"{seconds * 1e3:.1f}" for seconds in (stream.latency_s, stream.queued_latency_s))
        table.add_row(name, f"{stream.frames_per_s:.4g}", *times, stream.bottleneck)
    out.print(table)
    table = console.table("models", "model", ">runs per frame", ">runs/s", ">busy", ">latency ms")
    for name, model in prediction.models.items():
        numbers = f"{model.runs:.4g}", f"{model.runs_per_s:.4g}", f"{model.busy:.0%}", f"{model.latency_s * 1e3:.1f}"
        table.add_row(name, *numbers)
    out.print(table)
    for name, share in prediction.busy.items():
        out.print(f"{name}: {share:.0%} busy")
