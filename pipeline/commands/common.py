"""What several commands share: options, progress, tables."""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.status import Status
from rich.table import Table

from pipeline.commands import targets
from pipeline.errors import PlanError

if TYPE_CHECKING:
    from pipeline.plans import Plan
    from pipeline.scheduler.trace import Trace
    from pipeline.split.graph import Graph
    from pipeline.split.planner import Planner

Progress = Callable[[str], None]

# Tables keep their columns when they are piped into a file or another program.
PIPED_WIDTH = 160


class _Console(Console):
    def on_broken_pipe(self) -> None:
        # Instead of leaving with status 1: a reader who has seen enough is no failure, and `cli.main` knows it.
        raise BrokenPipeError


def console(*, error: bool = False) -> Console:
    """Return a console for results, or with `error` one beside them."""
    stream = sys.stderr if error else sys.stdout
    return _Console(stderr=error, width=None if stream and stream.isatty() else PIPED_WIDTH, highlight=False)


def notice(text: str) -> None:
    """Print a line that is no result, so that it stays out of what is piped."""
    print(text, file=sys.stderr)


@contextlib.contextmanager
def progress(text: str) -> Iterator[Progress]:
    """Show on the terminal what is being done; silent where there is no terminal."""
    with Status(text, console=Console(stderr=True)) as status:
        yield status.update


def print_json(value: object) -> None:
    """Print plain values as JSON."""
    print(msgspec.json.format(msgspec.json.encode(value, enc_hook=_plain), indent=2).decode())


def _plain(value: object) -> object:
    if isinstance(value, Mapping):  # a read-only view, which msgspec does not know
        return dict(value)
    raise NotImplementedError


def table(title: str, *columns: str) -> Table:
    """Return a table; a column whose name begins with ``>`` is aligned to the right."""
    made = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        made.add_column(
            column.removeprefix(">"), justify="right" if column.startswith(">") else "left", overflow="fold"
        )
    return made


def amount(nbytes: float) -> str:
    """Return bytes in a readable unit."""
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} GB"


def trace_argument(parser: argparse.ArgumentParser) -> None:
    """Add where to write a trace."""
    parser.add_argument(
        "--trace", metavar="FILE", help="write what each stage did when; open it at https://ui.perfetto.dev"
    )


@contextlib.contextmanager
def tracing(path: str | None, plan: Plan) -> Iterator[Trace | None]:
    """Give a trace to note events in, and write it to `path` in the end, whatever happened; None without `path`."""
    if path is None:
        yield None
        return
    from pipeline import trace_file
    from pipeline.scheduler.trace import Trace

    trace_file.check(Path(path))
    trace = Trace()
    try:
        yield trace
    finally:
        # What went wrong, or lasted too long, is what one wants to look at.
        if len(trace):
            trace_file.save(trace.events(), path, model=plan.model, stages=[stage.name for stage in plan.stages])
        if trace.full:
            notice(f"the trace holds the newest {len(trace)} events, from frame {trace.events()[0].frame} on")


def plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how to cut a model and what to run it on."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--stages", metavar="N", default="auto", help="number of stages, or 'auto' (default)")
    how.add_argument(
        "--cut",
        metavar="NAME",
        action="append",
        help="cut behind this tensor, operator or position ('inspect' lists them); may be repeated",
    )
    parser.add_argument("--board", default="host", help="what to run on (default: host, this machine)")
    targets.argument(parser)
    parser.add_argument(
        "--objective",
        choices=("throughput", "latency", "energy"),
        help="what automatic stages aim at (default: throughput; with --fps: latency)",
    )
    parser.add_argument("--fps", metavar="N", help="frames per second that arrive and must be kept up with")
    parser.add_argument(
        "--no-replicas", action="store_true", help="let each automatic stage work on one frame at a time only"
    )
    parser.add_argument(
        "--queue-depth",
        metavar="N",
        default="auto",
        help="frames that may wait in front of each stage, or 'auto' (default): as many as --variance asks for",
    )
    parser.add_argument(
        "--variance",
        metavar="V",
        default="0.1",
        help="standard deviation of a stage's time, as a share of it (default: 0.1)",
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="time the operators here instead of estimating; what 'profile' or an earlier plan measured is known",
    )
    parser.add_argument("--fresh", action="store_true", help="as --measure, and measure again what was measured before")


def make_plan(graph: Graph, options: argparse.Namespace) -> Plan:
    """Plan as the options say."""
    with progress("planning") as step:
        return plan_with(make_planner(graph, options, step), options)


def make_planner(graph: Graph, options: argparse.Namespace, step: Progress) -> Planner:
    """Return the planner of the board that the options name."""
    from pipeline.planning import planner

    return planner(
        graph,
        targets.board(options),
        measure=options.measure or options.fresh,
        fresh=options.fresh,
        queue_depth="auto" if options.queue_depth == "auto" else whole("--queue-depth", options.queue_depth),
        variance=share("--variance", options.variance),
        progress=step,
    )


def plan_with(planner: Planner, options: argparse.Namespace) -> Plan:
    """Plan as the options say."""
    return planner.plan(
        stages=options.stages if options.stages == "auto" else whole("--stages", options.stages),
        cuts=options.cut,
        objective=options.objective,
        fps=None if options.fps is None else number("--fps", options.fps),
        replicas=not options.no_replicas,
    )


def number(option: str, text: str) -> float:
    """Return the number above 0 that an option gives.

    Raises
    ------
    PlanError
        If it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise PlanError(f"{option} is {text!r}; it must be a number above 0")
    return value


def share(option: str, text: str) -> float:
    """Return the number of at least 0 that an option gives.

    Raises
    ------
    PlanError
        If it is none.
    """
    return 0.0 if text in ("0", "0.0") else number(option, text)


def whole(option: str, text: str) -> int:
    """Return the whole number of at least 1 that an option gives.

    Raises
    ------
    PlanError
        If it is none.
    """
    if not text.isdecimal() or int(text) < 1:
        raise PlanError(f"{option} is {text!r}; it must be a whole number of at least 1")
    return int(text)


def stage_rows(plan: Plan) -> Sequence[tuple[str, ...]]:
    """Return one row of text per stage for a table with the columns of `STAGE_COLUMNS`."""
    slowest = max(stage.seconds for stage in plan.stages) or 1.0
    return [
        (
            stage.name,
            stage.device,
            ",".join(map(str, stage.cores)) or "-",
            " .. ".join(stage.operators) or "-",
            f"{stage.seconds * 1e3:.3f}",
            f"{stage.seconds / slowest:.0%}",
            ", ".join(f"{spec.name} {amount(spec.nbytes)}" for spec in stage.inputs),
        )
        for stage in plan.stages
    ]


STAGE_COLUMNS = ("stage", "device", "cores", "operators", ">predicted ms", ">of slowest", "reads")
