"""Cost of tracing.

Frames stream through null stages on one core, so that what is left is the scheduler, in turns on three sides:

no hooks  the workers' source without the lines that note events
off       the workers as they are, without a trace
on        with a trace

us_per_frame      median over the rounds
ratio             of us_per_frame to that of 'no hooks', median over the rounds
us_per_event      what 'on' adds to 'off', shared among the events of a frame: a wait and a run per stage, and copies
us_per_event_add  one call of Trace.add alone
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise, repeat
from time import perf_counter
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
from hop import MICRO, on_core
from report import Row, median, parser, report, usable_cores

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.scheduler import Pipeline, Trace, worker, worker_group

SIDES = ("no hooks", "off", "on")
STAGES = 4


def main() -> None:
    options = parser(__doc__).parse_args()
    # Many short rounds: the sides differ by some percent, and single rounds vary by as much.
    rounds, frames = (15, 2000) if options.quick else (60, 4000)
    plan, bare = chain(STAGES), without_hooks(worker)
    samples: dict[str, list[float]] = {side: [] for side in SIDES}
    for number in range(rounds):
        # The order changes, so that none always follows the same one.
        for side in SIDES if number % 2 else SIDES[::-1]:
            with on_core(usable_cores()[0]), workers(bare if side == "no hooks" else worker):
                samples[side].append(stream(plan, frames, Trace() if side == "on" else None))
    rows = [row(side, samples, events_per_frame(plan)) for side in SIDES]
    report("The cost of tracing", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def chain(stages: int) -> Plan:
    """Return a chain of null stages on one core."""
    specs = [TensorSpec(f"t{number}", (1,)) for number in range(stages + 1)]
    core = usable_cores()[:1]
    stage_plans = tuple(
        StagePlan(f"stage{number}", "null", (reads,), (writes,), cores=tuple(core))
        for number, (reads, writes) in enumerate(pairwise(specs))
    )
    return Plan("tracing", "", Board("null", (Device("null", "null"),)), (specs[0],), (specs[-1],), stage_plans)


def without_hooks(module: ModuleType) -> ModuleType:
    """Return the module as if its workers never asked whether there is a trace."""
    tree = ast.parse(inspect.getsource(module))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    hooks = [(function, statement) for function in functions for statement in function.body if is_hook(statement)]
    if not hooks:
        raise LookupError("no hook was found in the worker's source: this benchmark has to follow it")
    for function, statement in hooks:
        position = function.body.index(statement)
        # A hook that returns where there is no trace makes everything behind it part of the hook.
        leaves = isinstance(statement, ast.If) and isinstance(statement.body[0], ast.Return)
        function.body[position : None if leaves else position + 1] = [ast.Pass()]
    bare = ModuleType(module.__name__)
    exec(compile(ast.fix_missing_locations(tree), "worker without hooks", "exec"), bare.__dict__)
    return bare


def is_hook(statement: ast.stmt) -> bool:
    """Tell if the statement asks for the trace: it leaves the function without one, or notes events with one."""
    return isinstance(statement, ast.If) and "trace" in ast.unparse(statement.test)


@contextmanager
def workers(module: Any) -> Iterator[None]:
    """Let pipelines use this module's workers."""
    with mock.patch.object(worker_group, "Worker", module.Worker):
        yield


def stream(plan: Plan, frames: int, trace: Trace | None) -> float:
    """Return the seconds per frame."""
    frame = np.zeros(1, np.float32)
    with Pipeline(plan, trace=trace) as running:
        for result in running.map(repeat(frame, 200), copy=False):
            del result
        begin_s = perf_counter()
        for result in running.map(repeat(frame, frames), copy=False):
            del result
        return (perf_counter() - begin_s) / frames


def events_per_frame(plan: Plan) -> int:
    """Return how many events a frame makes."""
    trace = Trace()
    stream(plan, 1, trace)
    return sum(event.frame == 0 for event in trace.events())


def row(side: str, samples: dict[str, list[float]], events: int) -> Row:
    """Return one line of the table."""
    added_s = median(samples["on"]) - median(samples["off"])
    on = side == "on"
    return {
        "side": side,
        "stages": STAGES,
        "us_per_frame": median(samples[side]) * MICRO,
        "ratio": median([mine / bare for mine, bare in zip(samples[side], samples[SIDES[0]], strict=True)]),
        "events_per_frame": events if on else 0,
        "us_per_event": added_s / events * MICRO if on else None,
        "us_per_event_add": add_alone() * MICRO if on else None,
    }


def add_alone(times: int = 100_000) -> float:
    """Return the seconds of one call."""
    trace = Trace()
    begin_s = perf_counter()
    for number in range(times):
        trace.add("stage", number, "run", 1.0, 2.0)
    return (perf_counter() - begin_s) / times


if __name__ == "__main__":
    main()
