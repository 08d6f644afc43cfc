"""``soc-pipeline tune``: search faster kernels for the slowest operators."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import pipeline
from pipeline.commands.shared import console, models, plan_options, values
from pipeline.errors import TuningError

if TYPE_CHECKING:
    from pipeline.core.plan.plan import Plan
    from pipeline.executor.tuning.bench import TrialBench
    from pipeline.executor.tuning.database import TuningRecord
    from pipeline.executor.tuning.tuner import TuningStep
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
    plan_options.arguments(parser)
    parser.add_argument(
        "--trials",
        metavar="N",
        type=values.count,
        default=64,
        help="kernels to measure, of all operators together (default: 64)",
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=values.positive,
        default=math.inf,
        help="begin no more after so many seconds (default: no limit)",
    )
    parser.add_argument(
        "--database", metavar="FILE", help=f"where to keep what is found (default: MODEL{SUFFIX}, beside the model)"
    )
    parser.add_argument("--seed", type=values.seed, default=0, help="of the search (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(options: argparse.Namespace, bench: TrialBench | None = None) -> int:
    """Read, plan if necessary, search, print; `bench` as for `pipeline.tune`."""
    from pipeline.executor.tuning.database import Database

    _check(options)
    path = Path(options.database or f"{options.model}{SUFFIX}")
    # For its error alone: a file that cannot be used is found before anything is timed.
    Database.load(path, create=True)
    graph = models.read(options)
    plan = _plan(graph, options)
    try:
        with _bar(options.trials) as (step, show_trial):
            records = pipeline.tune(
                graph,
                plan,
                path,
                trials=options.trials,
                seconds=options.seconds,
                seed=options.seed,
                bench=bench,
                progress=step,
                on_trial=show_trial,
            )
    except KeyboardInterrupt:
        # Nothing was found before the first trial has ended.
        if path.exists():
            console.notice(f"what was found is in {path}; the same command goes on from there")
        raise
    if options.json:
        console.print_json({"database": str(path), "kernels": [_facts(record) for record in records]})
    else:
        _show(records, path)
    return 0


def database_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the tuning database of a build."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--tuning", metavar="FILE", help=f"a database of 'soc-pipeline tune' (default: MODEL{SUFFIX}, if it is there)"
    )
    group.add_argument("--no-tuning", action="store_true", help="use no tuning database, even if there is one")


def database_for(options: argparse.Namespace) -> Path | None:
    """Return the build's tuning database, if any, or raise `TuningError`."""
    # Beside the model, where `tune` puts it.
    default = Path(f"{options.model}{SUFFIX}")
    if options.no_tuning or not (options.tuning or default.exists()):
        return None
    from pipeline.executor.tuning.database import Database

    path = Path(options.tuning or default)
    Database.load(path)
    return path


def _check(options: argparse.Namespace) -> None:
    plan_options.check_file(options)
    if Path(options.model).is_dir():
        raise TuningError(
            f"{options.model!r} is a folder; a bundle has compiled kernels only, so give the model that it was built "
            f"from: soc-pipeline tune MODEL --plan {options.model}"
        )


def _plan(graph: Graph, options: argparse.Namespace) -> Plan:
    if not options.plan:
        return plan_options.make_plan(graph, options)
    # A bundle has its plan in it, with the stages that were built.
    is_bundle = Path(options.plan).is_dir()
    return pipeline.Bundle.load(options.plan).plan if is_bundle else pipeline.Plan.load(options.plan)


@contextlib.contextmanager
def _bar(trials: int) -> Iterator[tuple[console.Progress, Callable[[TuningStep], None]]]:
    """Show the trials' number and last gain on a terminal, if any."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    # Without a terminal there is nobody to look at it.
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=trials)

        def show_trial(step: TuningStep) -> None:
            gain = _gain(step.record)
            bar.update(task, completed=step.trials, description=f"{step.name}: {gain}")

        yield lambda text: bar.update(task, description=text), show_trial


def _gain(record: TuningRecord) -> str:
    if record.tuned_seconds is None or record.tuned_seconds >= record.rule_seconds:
        return "nothing faster yet"
    return f"{record.rule_seconds / record.tuned_seconds:.2f} times as fast"


def _show(records: Sequence[TuningRecord], path: Path) -> None:
    out = console.console()
    table = console.table(
        "Kernels that take the most time", "kernel", "shapes", ">trials", ">rule us", ">tuned us", "used"
    )
    for record in records:
        tuned_us = "-" if record.tuned_seconds is None else f"{record.tuned_seconds * 1e6:.1f}"
        use = _gain(record) if record.faster else "no: the rule is as fast"
        numbers = (str(record.trials), f"{record.rule_seconds * 1e6:.1f}", tuned_us)
        table.add_row(record.name, record.key.shapes, *numbers, use)
    out.print(table)
    out.print(f"Tuning: {path}; 'soc-pipeline build' uses it where the model lies beside it", soft_wrap=True)


def _facts(record: TuningRecord) -> dict[str, object]:
    return {
        "kernel": record.name,
        "shapes": record.key.shapes,
        "cores": record.key.cores,
        "trials": record.trials,
        "rule_seconds": record.rule_seconds,
        "tuned_seconds": record.tuned_seconds,
        "used": record.faster,
    }
