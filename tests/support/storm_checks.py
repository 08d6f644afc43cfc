"""Checks of a storm: what results may hold, in what order they come, and what may be left when all is over."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.plan.plan import Plan
from pipeline.errors import PipelineError
from pipeline.scheduler import Pipeline
from pipeline.system.threads import RESTING, ReusableThread
from tests.support.storm_stages import ROWS, SHAPE, Weather

STEP = 4096
"""Inputs are multiples of it, and versions of parameters are less: so a sum tells both apart, and float32 holds it."""

END_S = 15.0
"""Seconds that threads have to end in."""


@dataclass(eq=False)
class Change:
    """A change of parameters, of one stage or by another bundle with a plan of its own."""

    rows: tuple[int, ...]
    plan: Plan | None
    begin: float
    end: float = math.inf
    """Also of one that was interrupted, which may have come about or not."""
    refused: bool = False


@dataclass
class Submission:
    """A frame, and when it was submitted."""

    value: int
    future: Future[Any]
    begin: float
    end: float


@dataclass
class Records:
    """Calls of a pipeline, and what came of it."""

    plan: Plan
    changes: dict[int, Change] = field(default_factory=dict)
    submissions: list[Submission] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    results: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.values, self._versions = itertools.count(1), itertools.count(2)
        self.changes[1] = Change(tuple(range(ROWS)), self.plan, -math.inf, -math.inf)

    @contextmanager
    def change(self, rows: tuple[int, ...], plan: Plan | None = None) -> Iterator[int]:
        """Note a change, and yield the version of its parameters."""
        version = next(self._versions)
        change = self.changes[version] = Change(rows, plan, time.monotonic())
        try:
            yield version
        except PipelineError:
            change.refused = True
            raise
        change.end = time.monotonic()

    def watch_end(self, future: Future[Any]) -> None:
        """Note when a frame ends, unless it has ended before."""
        me, adding = threading.get_ident(), True

        def note(future: Future[Any]) -> None:
            if not (adding and threading.get_ident() == me):
                self.ends.append(future)

        future.add_done_callback(note)
        adding = False

    def check_result(self, result: np.ndarray, value: int, begin: float, end: float) -> None:
        """Look at the result of a frame that was submitted between `begin` and `end`."""
        self.results.append(result)
        if problem := self._problem(result, value, begin, end):
            self.wrong.append(f"frame {value}: {problem}: {result[:, 0] if result.shape == SHAPE else result}")

    def _problem(self, result: np.ndarray, value: int, begin: float, end: float) -> str:
        if result.shape != SHAPE or result.dtype != np.float32 or not (result == result[:, :1]).all():
            return "another shape, or parameters torn in two"
        factors, versions = divmod(result[:, 0].astype(int), STEP)
        if set(factors.tolist()) not in ({value}, {2 * value}):
            return "the result of another frame"
        if not {*versions.tolist()} - {0} <= self.changes.keys():
            return "parameters that nobody gave"
        sources = {row: self.changes[version] for row, version in enumerate(versions.tolist()) if version}
        return self._source_problem(sources, factors[0] // value, begin, end)

    def _source_problem(self, sources: dict[int, Change], factor: int, begin: float, end: float) -> str:
        for source in sources.values():
            if source.refused or source.begin > end:
                return "parameters that were refused, or came later"
            if source.plan is not None and (len(sources), factor) != _pattern(source.plan):
                return "another plan's stages"
        horizon = max(begin, *(source.begin for source in sources.values()))
        for row, source in sources.items():
            for change in self.changes.values():
                outdated = change.begin > source.end and (change.end < horizon or change in sources.values())
                if outdated and row in change.rows and not change.refused:
                    return "old parameters, or a mixture"
        return ""

    def check_ends(self, running: Pipeline) -> dict[str, int]:
        """Look at the ends of all frames of a closed pipeline, and return how many there were of each."""
        # Those that were given up end one after the other, and a callback may be in the midst of something.
        _wait(lambda: not running.statistics().in_flight and all(frame.future.done() for frame in self.submissions))
        statistics = running.statistics()
        ends = {
            "delivered": statistics.delivered, "failed": statistics.failed, "cancelled": statistics.cancelled,
            "dropped": sum(statistics.dropped.values()),
        }  # fmt: skip
        if statistics.in_flight or statistics.submitted != sum(ends.values()):
            self.wrong.append(f"the books: {statistics.submitted} submitted, {ends}, {statistics.in_flight} in flight")
        for frame in self.submissions:
            if not frame.future.done():
                self.wrong.append(f"a future never ended: {frame.future}")
            elif _is_delivered(frame.future):
                self.check_result(frame.future.result(), frame.value, frame.begin, frame.end)
        order = [future.sequence for future in self.ends if _is_delivered(future)]
        if order != sorted(order):
            self.wrong.append(f"results came in the order {order}")
        owners = {id(result.base if result.base is not None else result) for result in self.results}
        if len(owners) != len(self.results) or _overlap(self.results):
            self.wrong.append("results share memory")
        return ends


def _pattern(plan: Plan) -> tuple[int, int]:
    return len(plan.stages), max(len(stage.inputs) for stage in plan.stages)


def _is_delivered(future: Future[Any]) -> bool:
    return not future.cancelled() and future.exception() is None


def _overlap(results: list[np.ndarray]) -> bool:
    starts = sorted({id(result): result.__array_interface__["data"][0] for result in results}.values())
    size = ROWS * SHAPE[1] * 4
    return any(after - before < size for before, after in itertools.pairwise(starts))


class Leftovers:
    """Threads and files that a process had before the storm, and may have afterwards."""

    def __init__(self) -> None:
        # Those that have just built something may still be ending.
        _wait(_is_quiet)
        self._before = set(threading.enumerate())
        self._files, self._foreign = _count("fd"), _foreign_threads()

    def check(self) -> list[str]:
        """Return what goes on, or was left open, though all pipelines are closed."""
        problems = []
        if not _wait(lambda: not self._busy()):
            problems.append(f"threads were left running: {', '.join(thread.name for thread in self._busy())}")
        # A thread is at work a little longer than its device is open, so twice as many may have been.
        elif (resting := len(set(threading.enumerate()) - self._before)) > 2 * Weather.most_open:
            problems.append(f"{resting} threads rest, and {Weather.most_open} devices were ever open at once")
        if not _wait(lambda: _foreign_threads() <= self._foreign):
            problems.append(f"{_foreign_threads()} threads of the system instead of {self._foreign}")
        if not _wait(lambda: _count("fd") <= self._files):
            problems.append(f"{_count('fd')} open files instead of {self._files}")
        if not _wait(_is_quiet):
            problems.append("the process goes on computing")
        return problems

    def _busy(self) -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each not in self._before and each.name != RESTING]


def _foreign_threads() -> int:
    """Return how many threads of the system are neither Python's nor helpers of one of its threads."""
    threads = threading.enumerate()
    return _count("task") - len(threads) - sum(map(_helpers, threads))


def _helpers(thread: threading.Thread) -> int:
    # The kind of a thread that TVM has computed in is a word and its cores; on each but one of them is a helper.
    return len(thread.kind) - 2 if isinstance(thread, ReusableThread) and isinstance(thread.kind, tuple) else 0


def _count(kind: str) -> int:
    folder = Path("/proc/self") / kind
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def _is_quiet() -> bool:
    start_s = time.process_time()
    time.sleep(0.01)
    return time.process_time() - start_s < 0.003


def _wait(happened: Callable[[], bool]) -> bool:
    end = time.monotonic() + END_S
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True
