"""Calls of a storm: what users, and callbacks, ask a pipeline for at random."""

from __future__ import annotations

import asyncio
import faulthandler
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

import numpy as np

from pipeline.errors import PipelineClosed, PipelineError
from pipeline.scheduler import Pipeline
from tests.support.forked import in_child
from tests.support.storm_checks import STEP, Records, Submission
from tests.support.storm_stages import PARAMETER, ROWS, SHAPE, make_bundle, make_parameter, make_plan

CHILD_S = 20
"""Seconds that a forked process has for its calls, all of which return at once."""


class Caller:
    """Calls a pipeline at random.

    Parameters
    ----------
    running : Pipeline
    records : Records
        Where to note what is asked for.
    kinds : sequence of str
        Of devices, for other bundles.
    chance : random.Random
    forks : bool
        Whether the process may be forked.
    interrupted : bool
        Whether this is the thread that interrupts hit.
    """

    def __init__(
        self,
        running: Pipeline,
        records: Records,
        kinds: Sequence[str],
        chance: random.Random,
        *,
        forks: bool,
        interrupted: bool = False,
    ) -> None:
        self._running, self._records, self._kinds, self._chance = running, records, kinds, chance
        self._forks, self._interrupted = forks, interrupted
        self._calls: dict[Callable[[], object], float] = {
            self._submit: 72, self._map: 4, self._flush: 4, self._drain: 4, self._cancel: 4, self._pause: 3,
            self._look: 3, self._set_params: 3, self._swap: 2, self._run: 2, self._observe: 1, self._map_async: 1,
            self._fork: 1, self._close: 0.5,
        }  # fmt: skip

    def call(self) -> None:
        """Make some calls, one after the other, until the pipeline is closed."""
        for _ in range(self._chance.randint(10, 60)):
            try:
                self._act(self._calls)
            except (TimeoutError, asyncio.TimeoutError, CancelledError, asyncio.CancelledError, PipelineError):  # noqa: PERF203
                if self._running.closed:
                    return
            except BaseException as error:  # noqa: BLE001
                if not (self._interrupted and isinstance(error, KeyboardInterrupt)):
                    self._records.wrong.append("".join(traceback.format_exception(error)))

    def call_back(self, _: Future[Any]) -> None:
        """Make one call, or fail, in a frame's callback."""
        self._act({
            lambda: sys.exit(3): 10, self._fail: 5, self._flush: 10, self._submit: 15, self._set_params: 4,
            self._swap: 4, self._look: 5, self._pause: 5, self._fork: 1, self._close: 5, lambda: None: 36,
        })  # fmt: skip

    def _act(self, calls: dict[Callable[[], object], float]) -> None:
        (call,) = self._chance.choices(list(calls), list(calls.values()))
        call()

    def _submit(self) -> None:
        value, buffer = self._next_input()
        timeout = self._chance.choice((None, 0, 0.01, 5.0))
        timestamp, begin = self._chance.choice((None, time.time() - 0.05)), time.monotonic()
        copy = self._chance.random() < 0.8
        future = self._running.submit(buffer, timeout=timeout, timestamp=timestamp, copy=copy)
        if copy:
            buffer[:] = -1
        self._records.submissions.append(Submission(value, future, begin, time.monotonic()))
        self._records.watch_end(future)
        if self._chance.random() < 0.2:
            # A generator of random numbers of its own: it is called in another thread.
            chance = random.Random(self._chance.random())
            next_caller = Caller(self._running, self._records, self._kinds, chance, forks=self._forks)
            future.add_done_callback(next_caller.call_back)
        if self._chance.random() < 0.2:
            future.result(0.05)

    def _map(self) -> None:
        value, buffer = self._next_input()
        begin, results = time.monotonic(), self._running.map([buffer] * 3, timeout=1.0)
        for result in results:
            self._records.check_result(result, value, begin, time.monotonic())

    def _map_async(self) -> None:
        if self._interrupted:  # which the loop does not survive
            return
        value, buffer = self._next_input()
        begin = time.monotonic()

        async def collect() -> list[np.ndarray]:
            return [result async for result in self._running.amap([buffer] * 3)]

        for result in asyncio.run(asyncio.wait_for(collect(), 1.0)):
            self._records.check_result(result, value, begin, time.monotonic())

    def _run(self) -> None:
        self._running.set_input("x", self._next_input()[1])
        self._running.run(timeout=0.1)
        self._running.get_output(timeout=0.1)

    def _cancel(self) -> None:
        if self._records.submissions:
            self._chance.choice(self._records.submissions).future.cancel()

    def _flush(self) -> None:
        self._running.flush()

    def _drain(self) -> None:
        self._running.drain(timeout=0.05)

    def _pause(self) -> None:
        self._running.pause()
        self._running.resume()

    def _look(self) -> None:
        self._running.statistics()
        self._running.latencies()

    def _observe(self) -> None:
        end = self._running.observe(lambda _arrays, _future: None)
        try:
            self._submit()
        finally:
            end()

    def _set_params(self) -> None:
        row = self._chance.randrange(ROWS)
        with self._records.change((row,)) as version:
            array = make_parameter(row, version)
            # Of a stage with steps, the first one has the parameter; the other name is refused.
            stage = self._chance.choice((f"s{row}", f"s{row}.step0"))
            self._running.set_params(stage, {PARAMETER: array})
            array[:] = -1

    def _swap(self) -> None:
        plan = make_plan(self._chance, self._kinds)
        with self._records.change(tuple(range(ROWS)), plan) as version:
            self._running.swap(make_bundle(plan, version))

    def _close(self) -> None:
        self._running.close(drain=self._chance.random() < 0.5, timeout=0.01)

    def _fail(self) -> None:
        raise ValueError("careless")

    def _fork(self) -> None:
        if self._forks:
            shield(lambda: self._check_child())  # noqa: PLW0108 - it returns nothing

    def _check_child(self) -> None:
        if problem := in_child(lambda: check_inherited(self._running, self._records)):
            self._records.wrong.append(f"in a forked process: {problem}")

    def _next_input(self) -> tuple[int, np.ndarray]:
        value = next(self._records.values)
        return value, np.full(SHAPE, value * STEP, np.float32)


def check_inherited(running: Pipeline, records: Records) -> None:
    """Look, in a process that was forked, whether all of a pipeline's calls return at once."""
    # What hangs says where, and is ended.
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(CHILD_S)
    frame = np.zeros(SHAPE, np.float32)
    calls: list[Callable[[], object]] = [
        lambda: running.submit(frame),
        lambda: list(running.map([frame])),
        lambda: running.set_params(running.plan.units[0].name, {PARAMETER: frame}),
        lambda: running.swap(make_bundle(running.plan, 0)),
    ]
    for call in calls:
        try:
            call()
        except PipelineClosed:
            continue
        raise AssertionError("a pipeline of another process takes frames")
    running.drain()
    assert running.flush() == running.statistics().in_flight == 0
    running.close()
    assert running.closed
    assert all(each.future.done() for each in records.submissions), "a frame never ends"


def shield(call: Callable[[], None]) -> None:
    """Call something of the standard library that an interrupt would tear."""
    if threading.current_thread() is not threading.main_thread():
        call()
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        call()
    finally:
        signal.signal(signal.SIGINT, handler)
