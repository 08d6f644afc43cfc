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

import pipeline
from pipeline.errors import PlanError

if TYPE_CHECKING:
    from pipeline.plans import Plan
    from pipeline.scheduler.trace import Trace
    from pipeline.split.graph import Graph
    from pipeline.split.open_model import OpenModel
    from pipeline.split.planner import Planner
    from pipeline.verification import Verification

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


def model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model and how to read it."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="an ONNX file, a TFLite model, an exported PyTorch program, a Relay program, or a Relax module",
    )
    parser.add_argument(
        "--shape",
        metavar="INPUT=EXTENTS",
        action="append",
        default=[],
        help="extents for an input with a symbolic shape, such as data=1,3,224,224, or with names for those that vary, "
        "such as data=N,3,224,224; may be repeated",
    )
    parser.add_argument(
        "--size",
        metavar="NAME=EXTENT",
        action="append",
        default=[],
        help="extents for the names in --shape, such as N=16 or H=224,W=224; may be repeated: the first one is planned",
    )
    parser.add_argument(
        "--params",
        metavar="FILE",
        help="parameters of a Relay program or Relax module: of relay.save_param_dict, or a .npz file",
    )


def verify_argument(parser: argparse.ArgumentParser) -> None:
    """Add the comparison with the library that the model's format belongs to."""
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare the model as it was read with ONNX Runtime, PyTorch or LiteRT, whichever its format belongs to, "
        "on random input",
    )


def verified(graph: Graph, options: argparse.Namespace) -> Verification | None:
    """Compare a graph with the model it was read from, if the options say so; one that differs is an error."""
    if not options.verify:
        return None
    with progress("comparing"):
        return pipeline.verify(graph, options.model)


def verification_text(found: Verification) -> str:
    """Say what a verification found."""
    return (
        f"against {found.reference}: largest error {found.largest_error:.3g}, {found.relative:.3g} of the largest "
        f"value; allowed is {found.tolerance:.3g}"
    )


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


def read_model(options: argparse.Namespace) -> Graph:
    """Read the model that the options name, at the first size if its shapes vary."""
    return read_open_model(options)[0]


def read_open_model(options: argparse.Namespace) -> tuple[Graph, OpenModel | None]:
    """Read the model that the options name: at the first size, and the model itself if its shapes vary."""
    wanted = sizes(options)
    from pipeline.split.graph import Graph

    with progress(f"reading {options.model}"):
        found = pipeline.read(options.model, shapes(options), options.params)
        if isinstance(found, Graph):
            if wanted:
                raise PlanError("--size gives extents for names in --shape, such as --shape data=N,3,224,224")
            return found, None
        if not wanted:
            names = ", ".join(f"{name}=16" for name in found.shapes.names)
            raise PlanError(f"--shape has names for extents that vary; give at least one size, such as --size {names}")
        return found.at(wanted[0]), found


def sizes(options: argparse.Namespace) -> list[dict[str, int]]:
    """Return the sizes that the options give."""
    return [_size(text) for text in options.size]


def _size(text: str) -> dict[str, int]:
    parts = [part.partition("=") for part in text.split(",")]
    if not all(name.isidentifier() and extent.isdecimal() and int(extent) for name, _, extent in parts):
        raise PlanError(f"--size {text!r} is not NAME=EXTENT with an extent of at least 1, such as N=16 or H=224,W=224")
    return {name: int(extent) for name, _, extent in parts}


def shapes(options: argparse.Namespace) -> dict[str, list[int | str]]:
    """Return the extents that the options give, by input."""
    return dict(_shape(text) for text in options.shape)


def _shape(text: str) -> tuple[str, list[int | str]]:
    name, separator, extents = text.rpartition("=")
    shape = [int(each) if each.isdecimal() else each for each in extents.split(",")]
    if not separator or not all(each.isidentifier() if isinstance(each, str) else each > 0 for each in shape):
        raise PlanError(
            f"--shape {text!r} is not INPUT=EXTENTS with extents of at least 1, such as data=1,3,224,224, or names for "
            "those that vary"
        )
    return name, shape


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
        "--queue-depth", metavar="N", default="2", help="frames that may wait in front of a stage (default: 2)"
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

    depth = whole("--queue-depth", options.queue_depth)
    measure = options.measure or options.fresh
    return planner(graph, options.board, measure=measure, fresh=options.fresh, queue_depth=depth, progress=step)


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
