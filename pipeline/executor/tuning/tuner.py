"""Tuner: shares out trials among tasks, and keeps what is faster than the rule."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from pipeline.executor.tuning.bench import Bench, Times
from pipeline.executor.tuning.database import Database, Record
from pipeline.executor.tuning.layouts import LayoutSearch
from pipeline.executor.tuning.search import BATCH, Proposal, Search
from pipeline.executor.tuning.tasks import Task
from pipeline.plans import StagePlan

PATIENCE = 3
"""Generations without a new schedule after which a function's space counts as searched."""

FIRST_CHECK_S, SEARCH_FOR_CHECK = 30.0, 4.0
"""Seconds before what was found so far is checked, and times that searching takes as long as such checks, at least."""


@dataclass(frozen=True)
class Budget:
    """When to stop.

    Attributes
    ----------
    trials : int
        Schedules to measure, of all functions together.
    seconds : float
        After so long, no more are begun.
    """

    trials: int
    seconds: float = float("inf")


@dataclass(frozen=True)
class Step:
    """How far tuning is.

    Attributes
    ----------
    trials : int
        Measured in this run.
    name : str
        The function that was just measured.
    record : Record
        What is known of it now.
    """

    trials: int
    name: str
    record: Record


class _Running:
    """A task that is being searched."""

    def __init__(self, task: Task, record: Record, seed: int) -> None:
        self.task, self.record = task, record
        self.idle = 0
        self._seed = seed + record.trials
        self._search: Search | LayoutSearch | None = None

    @property
    def search(self) -> Search | LayoutSearch:
        """The search, begun when it is first asked for."""
        if self._search is None:
            self._search = self._begun()
        return self._search

    def _begun(self) -> Search | LayoutSearch:
        task, record = self.task, self.record
        if task.anchor is not None and task.form is not None:
            return LayoutSearch(task.anchor, task.form, task.target, task.key.cores, record.trials)
        seconds = record.tuned_seconds or 1.0
        return Search(task.function, task.target, task.key.cores, self._seed, record.trace, seconds)

    @property
    def unchecked(self) -> bool:
        """Whether something was found, but was not timed inside of the stage yet."""
        return self.record.trace is not None and not self.record.in_stage

    @property
    def promise(self) -> float:
        """Time that more trials may save: what it takes now, less the more has been tried in vain."""
        share = (self.record.tuned_seconds or 0) / self.record.rule_seconds if self.record.faster else 1.0
        return self.task.seconds * share / (1 + self.record.trials / BATCH)


def tune(  # noqa: PLR0913 - the last two by keyword
    tasks: Sequence[Task],
    database: Database,
    bench: Bench,
    budget: Budget,
    *,
    seed: int = 0,
    told: Callable[[Step], None] = lambda _: None,
) -> list[Record]:
    """Search for schedules that are faster than the rule, and keep each in the database as soon as it is found.

    An exception, such as an interruption, loses nothing that was kept; a later call goes on from there.

    Parameters
    ----------
    tasks : sequence of Task
    database : Database
    bench : Bench
    budget : Budget
    seed : int
    told : callable, optional
        Told of each trial.

    Returns
    -------
    list of Record
        In the order of the tasks.
    """
    running = [_Running(task, database.get(task.key) or _fresh(task), seed) for task in tasks]
    limits, checks = _Limits(budget), _Checks(running, bench, database)
    while not limits.reached and (searching := [each for each in running if each.idle < PATIENCE]):
        chosen = max(searching, key=lambda each: each.promise)
        _generation(chosen, bench, database, limits, told)
        checks.now_and_then()
    checks.now()
    return [each.record for each in running]


def _fresh(task: Task) -> Record:
    return Record(task.key, task.name, 0, task.seconds)


class _Limits:
    """Counts trials and time."""

    def __init__(self, budget: Budget) -> None:
        self._most, self._end = budget.trials, time.monotonic() + budget.seconds
        self.trials = 0

    @property
    def reached(self) -> bool:
        return self.trials >= self._most or time.monotonic() > self._end


def _generation(
    chosen: _Running, bench: Bench, database: Database, limits: _Limits, told: Callable[[Step], None]
) -> None:
    """Measure the next few schedules of a task."""
    candidates = chosen.search.candidates()
    chosen.idle = 0 if candidates else chosen.idle + 1
    seconds: list[float | None] = []
    for candidate in candidates:
        if limits.reached:
            return
        times = bench.alone(chosen.task, candidate.module)
        seconds.append(times.tuned if times else None)
        limits.trials += 1
        chosen.record = _improved(chosen.record, times, candidate)
        database.put(chosen.record)
        told(Step(limits.trials, chosen.task.name, chosen.record))
    if candidates:
        chosen.search.tell(candidates, seconds)


def _improved(record: Record, times: Times | None, candidate: Proposal) -> Record:
    """Return the record after one more trial, with the candidate in it if it is the best one so far."""
    more = msgspec.structs.replace(record, trials=record.trials + 1)
    if times is None or times.tuned >= times.rule:
        return more
    # Two that were not timed in turns are compared by what each gained.
    gained = times.tuned / times.rule
    if record.tuned_seconds is not None and gained >= record.tuned_seconds / record.rule_seconds:
        return more
    return msgspec.structs.replace(
        more,
        rule_seconds=times.rule,
        tuned_seconds=times.tuned,
        trace=candidate.text,
        in_stage=False,
    )


class _Checks:
    """Times what was found inside of the stages too, where other kernels fill the caches; that decides."""

    def __init__(self, running: Sequence[_Running], bench: Bench, database: Database) -> None:
        self._running, self._bench, self._database = running, bench, database
        self._next = time.monotonic() + FIRST_CHECK_S

    def now_and_then(self) -> None:
        """Check if searching has taken several times as long as the last check, which builds whole stages."""
        begin = time.monotonic()
        if begin >= self._next:
            self.now()
            end = time.monotonic()
            self._next = end + SEARCH_FOR_CHECK * (end - begin)

    def now(self) -> None:
        """Check what was not checked yet, all of a stage at once."""
        stages: dict[StagePlan, list[_Running]] = {}
        for each in self._running:
            if each.unchecked:
                stages.setdefault(each.task.subject.stage, []).append(each)
        for together in stages.values():
            times = self._bench.in_stage([each.task for each in together], self._database)
            for each, found in zip(together, times, strict=True):
                each.record = _checked(each.record, found)
                self._database.put(each.record)


def _checked(record: Record, times: Times | None) -> Record:
    if times is None:
        return msgspec.structs.replace(record, tuned_seconds=None, trace=None)
    return msgspec.structs.replace(record, rule_seconds=times.rule, tuned_seconds=times.tuned, in_stage=True)
