"""Tuner: distributes trials over tasks, and stores improvements on the rule."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from pipeline.core.plan.plan import StagePlan
from pipeline.executor.tuning.bench import TrialBench, TrialTimes
from pipeline.executor.tuning.database import Database, TuningRecord
from pipeline.executor.tuning.layouts import LayoutSearch
from pipeline.executor.tuning.search import BATCH, Proposal, ScheduleSearch
from pipeline.executor.tuning.tasks import Task

PATIENCE = 3
"""Generations without a new schedule until a function's space counts as searched."""

FIRST_CHECK_S, SEARCH_FOR_CHECK = 30.0, 4.0
"""Seconds before the first check of candidates, and least factor of searching time over such checks."""


@dataclass(frozen=True)
class Budget:
    """Limits of a search."""

    trials: int
    """Schedules to measure, of all functions together."""
    seconds: float = float("inf")
    """Seconds after which no more are begun."""


@dataclass(frozen=True)
class TuningStep:
    """Progress of tuning."""

    trials: int
    """Measured in this run."""
    name: str
    """The function that was just measured."""
    record: TuningRecord


class _TaskSearch:
    """A task under search."""

    def __init__(self, task: Task, record: TuningRecord, seed: int) -> None:
        self.task, self.record = task, record
        self.idle = 0
        # Another seed in each run, or the search would propose again what an earlier one has measured.
        self._seed = seed + record.trials
        self._search: ScheduleSearch | LayoutSearch | None = None

    @property
    def search(self) -> ScheduleSearch | LayoutSearch:
        """The search, begun when it is first asked for."""
        if self._search is None:
            self._search = self._start_search()
        return self._search

    def _start_search(self) -> ScheduleSearch | LayoutSearch:
        task, record = self.task, self.record
        if task.group is not None and task.form is not None:
            return LayoutSearch(task.group, task.form, task.target, task.key.cores, record.trials)
        seconds = record.tuned_seconds or 1.0
        return ScheduleSearch(task.function, task.target, task.key.cores, self._seed, record.trace, seconds)

    @property
    def needs_check(self) -> bool:
        """True with schedules untimed in the stage."""
        return self.record.trace is not None and not self.record.in_stage

    @property
    def promise(self) -> float:
        """Time that further trials may save, discounted by vain ones."""
        share = (self.record.tuned_seconds or 0) / self.record.rule_seconds if self.record.faster else 1.0
        # Falls with the generations, so that in the long run no task is left out for a slower one.
        return self.task.seconds * share / (1 + self.record.trials / BATCH)


def tune(  # noqa: PLR0913 - the last two by keyword
    tasks: Sequence[Task],
    database: Database,
    bench: TrialBench,
    budget: Budget,
    *,
    seed: int = 0,
    on_trial: Callable[[TuningStep], None] = lambda _: None,
) -> list[TuningRecord]:
    """Search for schedules faster than the rule, storing them at once.

    An exception, such as an interruption, loses nothing that was kept; a later call goes on from there.

    Parameters
    ----------
    tasks : sequence of Task
    database : Database
    bench : TrialBench
    budget : Budget
    seed : int
    on_trial : callable, optional
        Gets each trial.

    Returns
    -------
    list of TuningRecord
        Records in the order of the tasks.
    """
    searches = [_TaskSearch(task, database.get(task.key) or _empty_record(task), seed) for task in tasks]
    limits, checks = _Limits(budget), _Checks(searches, bench, database)
    while not limits.reached and (unfinished_searches := [search for search in searches if search.idle < PATIENCE]):
        task_search = max(unfinished_searches, key=lambda search: search.promise)
        _measure_generation(task_search, bench, database, limits, on_trial)
        checks.check_if_due()
    # Only what was timed inside of its stage is ever used, so this happens also when the time is up.
    checks.check()
    return [search.record for search in searches]


def _empty_record(task: Task) -> TuningRecord:
    return TuningRecord(task.key, task.name, 0, task.seconds)


class _Limits:
    """Counts trials and time."""

    def __init__(self, budget: Budget) -> None:
        # Not by the time of day, which somebody may set meanwhile.
        self._trial_limit, self._end = budget.trials, time.monotonic() + budget.seconds
        self.trials = 0

    @property
    def reached(self) -> bool:
        return self.trials >= self._trial_limit or time.monotonic() > self._end


def _measure_generation(
    task_search: _TaskSearch,
    bench: TrialBench,
    database: Database,
    limits: _Limits,
    notify: Callable[[TuningStep], None],
) -> None:
    """Measure the next few schedules of a task."""
    # None for a while may be chance, as the search is random; `PATIENCE` times in a row is the end.
    candidates = task_search.search.candidates()
    task_search.idle = 0 if candidates else task_search.idle + 1
    seconds: list[float | None] = []
    for candidate in candidates:
        if limits.reached:
            return
        times = bench.alone(task_search.task, candidate.module)
        seconds.append(times.candidate if times else None)
        limits.trials += 1
        task_search.record = _update_record(task_search.record, times, candidate)
        database.put(task_search.record)
        notify(TuningStep(limits.trials, task_search.task.name, task_search.record))
    if candidates:
        task_search.search.tell(candidates, seconds)


def _update_record(record: TuningRecord, times: TrialTimes | None, candidate: Proposal) -> TuningRecord:
    """Return the record after a trial, with a best candidate inside."""
    next_record = msgspec.structs.replace(record, trials=record.trials + 1)
    if times is None or times.candidate >= times.rule:
        return next_record
    # Two that were not timed in turns are compared by what each gained.
    ratio = times.candidate / times.rule
    if record.tuned_seconds is not None and ratio >= record.tuned_seconds / record.rule_seconds:
        return next_record
    return msgspec.structs.replace(
        next_record,
        rule_seconds=times.rule,
        tuned_seconds=times.candidate,
        trace=candidate.text,
        in_stage=False,
    )


class _Checks:
    """In-stage timing of candidates, decisive since other kernels fill caches."""

    def __init__(self, searches: Sequence[_TaskSearch], bench: TrialBench, database: Database) -> None:
        self._searches, self._bench, self._database = searches, bench, database
        self._next = time.monotonic() + FIRST_CHECK_S

    def check_if_due(self) -> None:
        """Check once searching took several times the last check."""
        begin = time.monotonic()
        if begin >= self._next:
            self.check()
            end = time.monotonic()
            self._next = end + SEARCH_FOR_CHECK * (end - begin)

    def check(self) -> None:
        """Check all unchecked candidates, stage by stage."""
        stages: dict[StagePlan, list[_TaskSearch]] = {}
        for search in self._searches:
            if search.needs_check:
                stages.setdefault(search.task.subject.stage, []).append(search)
        for stage_searches in stages.values():
            times = self._bench.in_stage([search.task for search in stage_searches], self._database)
            for search, stage_times in zip(stage_searches, times, strict=True):
                search.record = _confirm_record(search.record, stage_times)
                self._database.put(search.record)


def _confirm_record(record: TuningRecord, times: TrialTimes | None) -> TuningRecord:
    if times is None:
        # It failed inside of the stage; the trials stay counted, so that it is not proposed again.
        return msgspec.structs.replace(record, tuned_seconds=None, trace=None)
    return msgspec.structs.replace(record, rule_seconds=times.rule, tuned_seconds=times.candidate, in_stage=True)
