"""Tune: searches faster kernels for the slowest operators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.core.renaming import accept_renamed
from pipeline.errors import TuningError

if TYPE_CHECKING:
    from pipeline.core.plan.plan import Plan
    from pipeline.executor.tuning.bench import TrialBench
    from pipeline.executor.tuning.database import TuningRecord
    from pipeline.executor.tuning.tasks import Task
    from pipeline.executor.tuning.tuner import TuningStep
    from pipeline.split.graph import Graph


@accept_renamed(told="on_trial")
def tune(  # noqa: PLR0913 - all but the first three by keyword
    graph: Graph,
    plan: Plan,
    database: str | Path,
    *,
    trials: int = 64,
    seconds: float = float("inf"),
    seed: int = 0,
    bench: TrialBench | None = None,
    progress: Callable[[str], None] = lambda _: None,
    on_trial: Callable[[TuningStep], None] = lambda _: None,
) -> list[TuningRecord]:
    """Search faster kernels for the slowest operators first.

    For convolutions and dense layers, which have a rule, those are the rule's own with other tiles; for operators
    without a rule, schedules of TVM's MetaSchedule.  Results are kept in `database` at once: an interruption loses
    nothing, and calling again goes on.  A kernel counts as faster only if it is so inside of its stage;
    `pipeline.build` with ``tuning=database`` uses those.

    Parameters
    ----------
    graph : Graph
    plan : Plan
        Plan whose stages that this machine can run are tuned, each for its own cores.
    database : str or Path
        A JSON file, made if it is missing.
    trials : int
        Kernels to measure, of all operators together.
    seconds : float
        Seconds after which no more are begun.
    seed : int
    bench : TrialBench, optional
        Bench that measures; by default a process on the stage's own cores.
    progress, on_trial : callable, optional
        Get each step as text, and each trial.

    Returns
    -------
    list of Record
        Records of each operator, the slowest first.

    Raises
    ------
    TuningError
        If the database is damaged or another kind of file, or there is nothing to tune.
    PlanError
        If the plan belongs to another graph.
    """
    from pipeline.executor.tuning.bench import ProcessBench
    from pipeline.executor.tuning.database import Database
    from pipeline.executor.tuning.tuner import Budget
    from pipeline.executor.tuning.tuner import tune as search

    # First, since a file that cannot be used should not cost the time of looking for tasks.
    kernels = Database.load(database, create=True)
    tasks = _tasks(graph, plan, progress)
    if not tasks:
        raise TuningError(
            f"there is nothing to tune in {graph.name!r}: what takes time on this machine has neither tiles nor "
            "a general schedule"
        )
    budget = Budget(trials, seconds)
    progress("tuning")
    # Its process begins with its first measurement: it costs nothing where another bench is given.
    with ProcessBench() as default_bench:
        return search(tasks, kernels, bench or default_bench, budget, seed=seed, on_trial=on_trial)


def _tasks(graph: Graph, plan: Plan, progress: Callable[[str], None]) -> list[Task]:
    from pipeline.executor.tuning.tasks import Subject, merge_tasks, of_stage
    from pipeline.split import extract, stage_parts
    from pipeline.split.earlier_plans import update_plan

    plan = update_plan(plan, graph)
    tasks: list[Task] = []
    for stage, part in zip(plan.units, stage_parts.parts(graph, plan), strict=True):
        progress(f"timing {stage.name}")
        tasks += of_stage(Subject(stage, extract.module(part), plan.board.device(stage.device)))
    return sorted(merge_tasks(tasks), key=lambda task: -task.seconds)
