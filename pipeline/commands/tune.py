"""``soc-pipeline tune``: search faster kernels for the operators that take the most time."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import pipeline
from pipeline.commands import common, models
from pipeline.errors import PlanError, TuningError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipeline.executor.tuning.database import Record
    from pipeline.executor.tuning.tuner import Step
    from pipeline.plans import Plan
    from pipeline.split.graph import Graph

HELP = (
    "Search faster kernels for the operators that take the most time: other tiles for convolutions and dense layers, "
    "and schedules of TVM's MetaSchedule for operators without a rule. It may be interrupted at any time, and goes on "
    "from there when it is called again; 'build' uses what was found."
)
EXAMPLE = "soc-pipeline tune model.onnx --plan plan.json --trials 200"

SUFFIX = ".tuning.json"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    models.arguments(parser)
    parser.add_argument("--plan", metavar="FILE", help="a plan from 'soc-pipeline plan', or a bundle; else plan now")
    common.plan_arguments(parser)
    parser.add_argument(
        "--trials", metavar="N", default="64", help="kernels to measure, of all operators together (default: 64)"
    )
    parser.add_argument("--seconds", metavar="S", help="begin no more after so many seconds (default: no limit)")
    parser.add_argument(
        "--database", metavar="FILE", help=f"where to keep what is found (default: MODEL{SUFFIX}, beside the model)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the search (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: argparse.Namespace) -> int:
    """Read, plan if need be, search, print."""
    from pipeline.executor.tuning.database import Database

    _check(options)
    path = Path(options.database or f"{options.model}{SUFFIX}")
    Database.load(path, create=True)
    trials, seconds = common.whole("--trials", options.trials), _seconds(options.seconds)
    graph = models.read(options)
    plan = _plan(graph, options)
    try:
        with _bar(trials) as (step, told):
            records = pipeline.tune(
                graph, plan, path, trials=trials, seconds=seconds, seed=options.seed, progress=step, told=told
            )
    except KeyboardInterrupt:
        if path.exists():
            common.notice(f"what was found is in {path}; the same command goes on from there")
        raise
    if options.json:
        common.print_json({"database": str(path), "kernels": [_facts(each) for each in records]})
    else:
        _show(records, path)
    return 0


def database_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which tuning database to build with."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--tuning", metavar="FILE", help=f"a database of 'soc-pipeline tune' (default: MODEL{SUFFIX}, if it is there)"
    )
    which.add_argument("--no-tuning", action="store_true", help="use no tuning database, even if there is one")


def database_for(options: argparse.Namespace) -> Path | None:
    """Return the tuning database to build with, if there is one.

    Raises
    ------
    TuningError
        If it is damaged or another kind of file, before anything was done.
    """
    beside = Path(f"{options.model}{SUFFIX}")
    if options.no_tuning or not (options.tuning or beside.exists()):
        return None
    from pipeline.executor.tuning.database import Database

    path = Path(options.tuning or beside)
    Database.load(path)
    return path


def _check(options: argparse.Namespace) -> None:
    if options.plan and (options.stages != "auto" or options.cut):
        raise PlanError("--plan already says where to cut; leave out --stages and --cut")
    if Path(options.model).is_dir():
        raise TuningError(
            f"{options.model!r} is a folder; a bundle has compiled kernels only, so give the model that it was built "
            f"from: soc-pipeline tune MODEL --plan {options.model}"
        )


def _seconds(text: str | None) -> float:
    try:
        seconds = math.inf if text is None else float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise PlanError(f"--seconds is {text!r}; it must be a number above 0")
    return seconds


def _plan(graph: Graph, options: argparse.Namespace) -> Plan:
    if not options.plan:
        return common.make_plan(graph, options)
    is_bundle = Path(options.plan).is_dir()
    return pipeline.Bundle.load(options.plan).plan if is_bundle else pipeline.Plan.load(options.plan)


@contextlib.contextmanager
def _bar(trials: int) -> Iterator[tuple[common.Progress, Callable[[Step], None]]]:
    """Show how many trials are done, and what the last one brought; nothing where there is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=trials)

        def told(step: Step) -> None:
            gain = _gain(step.record)
            bar.update(task, completed=step.trials, description=f"{step.name}: {gain}")

        yield lambda text: bar.update(task, description=text), told


def _gain(record: Record) -> str:
    if record.tuned_seconds is None or record.tuned_seconds >= record.rule_seconds:
        return "nothing faster yet"
    return f"{record.rule_seconds / record.tuned_seconds:.2f} times as fast"


def _show(records: Sequence[Record], path: Path) -> None:
    out = common.console()
    table = common.table(
        "Kernels that take the most time", "kernel", "shapes", ">trials", ">rule us", ">tuned us", "used"
    )
    for each in records:
        tuned = "-" if each.tuned_seconds is None else f"{each.tuned_seconds * 1e6:.1f}"
        used = _gain(each) if each.faster else "no: the rule is as fast"
        shapes = each.key.shapes.replace("[", r"\[")
        table.add_row(each.name, shapes, str(each.trials), f"{each.rule_seconds * 1e6:.1f}", tuned, used)
    out.print(table)
    out.print(f"Tuning: {path}; 'soc-pipeline build' uses it where the model lies beside it", soft_wrap=True)


def _facts(record: Record) -> dict[str, object]:
    return {
        "kernel": record.name,
        "shapes": record.key.shapes,
        "cores": record.key.cores,
        "trials": record.trials,
        "rule_seconds": record.rule_seconds,
        "tuned_seconds": record.tuned_seconds,
        "used": record.faster,
    }
