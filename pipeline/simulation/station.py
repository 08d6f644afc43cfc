"""Station: a simulated stage, its queue and workers, by scheduler rules.

A worker takes a frame, which frees the frame's place in the queue at once; waits for the cores that it shares with
other stages; brings tensors in, computes (on a device that computes one frame at a time once it is free) and hands
tensors out; leaves the cores; needs a moment to hand the frame on; and only then waits for a place in each next queue,
holding its frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pipeline.core.plan.plan import StagePlan
from pipeline.scheduler.statistics import StageCounters, percentiles
from pipeline.scheduler.trace import Trace
from pipeline.simulation.clock import Clock, Process, Request, Tokens
from pipeline.simulation.result import SimulatedStage
from pipeline.simulation.segments import Segment, Transfer


class SimulatedFrame:
    """A frame on its way.

    It came to the entrance at `arrival_time`, and went in at `start_time`. `missing_branches` have not come yet, for
    each stage that joins branches; once all have come to the end, it `is_complete`.
    """

    __slots__ = ("arrival_time", "is_complete", "missing_branches", "number", "start_time")

    def __init__(self, number: int, arrival_time: float, start_time: float, joins: dict[int, int]) -> None:
        self.number, self.arrival_time, self.start_time = number, arrival_time, start_time
        self.missing_branches = dict(joins)
        self.is_complete = False

    def join_branch(self, stage: int) -> bool:
        """Record a branch's arrival at a stage; True for the last."""
        if stage not in self.missing_branches:
            return True
        self.missing_branches[stage] -= 1
        return not self.missing_branches[stage]


@dataclass(frozen=True)
class Work:
    """Work of a worker on one frame."""

    segments: Sequence[Segment]
    """The stage in one piece, or its steps, one after the other."""
    cores: Sequence[Tokens] = ()
    """Cores that other stages compute on as well, in the order in which all take them."""
    overhead: float = 0.0
    """Seconds that the scheduler takes to hand the frame on, or a borrowed device."""


class SegmentTimes(NamedTuple):
    """Times of a segment: inputs, device request, device, computed, outputs."""

    start: float
    asked: float
    begin: float
    ran: float
    end: float


class Station:
    """One stage.

    Each replica has its `work`; `on_departure` is called when a frame has left the queue, which has free `places`. The
    `counters` of each worker are the scheduler's own. `pass_on`, set once all stations are there, returns the requests
    with which a frame goes on; `on_link` has the seconds for which each link was in use.
    """

    def __init__(
        self,
        clock: Clock,
        stage: StagePlan,
        work: Sequence[Work],
        on_departure: Callable[[], None],
        trace: Trace | None,
    ) -> None:
        self.stage, self._clock, self._on_departure, self._trace = stage, clock, on_departure, trace
        self.places = Tokens(clock, stage.queue_depth)
        self.pass_on: Callable[[SimulatedFrame], Iterator[Request]]
        # By name, since two stages may use one link: the stream adds them up.
        self.on_link: dict[str, float] = {}
        self._frames: deque[tuple[SimulatedFrame, float]] = deque()
        self._ready = Tokens(clock, 0)
        self._blocked_s = 0.0
        self._longest = 0
        self._waits: list[float] = []
        self.counters = [StageCounters() for _ in work]
        for replica, replica_work in enumerate(work):
            clock.start(self._serve(replica_work, replica))

    def put(self, frame: SimulatedFrame) -> Iterator[Request]:
        """Wait for a place in the queue and enter it."""
        yield self.places.take()
        self.put_reserved(frame)

    def put_reserved(self, frame: SimulatedFrame) -> None:
        """Enter the queue at a reserved place."""
        self._frames.append((frame, self._clock.time))
        self._ready.give()
        # Those that the workers at leisure take up at once do not wait.
        self._longest = max(self._longest, self._ready.free)

    def result(self, seconds: float) -> SimulatedStage:
        """Summarise the station over `seconds`."""
        # A stream of which nothing was started takes no time.
        worker_seconds = seconds * self.stage.replicas or 1.0
        return SimulatedStage(
            name=self.stage.name,
            device=self.stage.device,
            frames=len(self._waits),
            busy=sum(worker.busy_s for worker in self.counters) / worker_seconds,
            blocked=self._blocked_s / worker_seconds,
            # Little's law: the mean number that waits is the rate times the mean wait, and so the sum of the waits over
            # the time.
            queue_mean=sum(self._waits) / (seconds or 1.0),
            queue_longest=self._longest,
            wait_s=percentiles(self._waits),
            replicas=self.stage.replicas,
        )

    def _serve(self, work: Work, replica: int) -> Process:
        clock = self._clock
        while True:
            yield self._ready.take()
            frame, arrival_time = self._frames.popleft()
            # At once, as the scheduler does: the stage before may go on while this one computes.
            self.places.give()
            self._on_departure()
            self._waits.append(clock.time - arrival_time)
            for core in work.cores:
                # In the same order for all stages: so none holds a core that another one needs for its own first.
                yield core.take()
            times = yield from self._run_all(work, frame.number)
            self._note(frame.number, replica, arrival_time, work.segments, times)
            for core in work.cores:
                core.give()
            # The cores are free for others meanwhile: most of this is the system, waking the next thread.
            yield clock.sleep(work.overhead)
            departure_time = clock.time
            yield from self.pass_on(frame)
            self._blocked_s += clock.time - departure_time

    def _run_all(self, work: Work, number: int) -> Generator[Request, None, list[SegmentTimes]]:
        times = []
        for segment in work.segments:
            segment_times = yield from self._run(segment, number, work.overhead)
            times.append(segment_times)
        return times

    def _run(self, segment: Segment, number: int, overhead: float) -> Generator[Request, None, SegmentTimes]:
        clock = self._clock
        start_time = clock.time
        yield from self._move(segment.entry_transfers, number)
        asked_time = clock.time
        if segment.device is not None:
            # After the tensors have come: moving them is what overlaps with another frame's run.
            # The oldest frame first, as the scheduler lends devices.
            yield segment.device.take(number)
            # A thread that waits for what others borrow has to be woken, as one that waits for a frame.
            if segment.is_lent and clock.time > asked_time:
                yield clock.sleep(overhead)
        begin_time = clock.time
        yield segment.run(clock, number)
        if segment.device is not None:
            segment.device.give()
        ran_time = clock.time
        yield from self._move(segment.exit_transfers, number)
        return SegmentTimes(start_time, asked_time, begin_time, ran_time, clock.time)

    def _move(self, transfers: Sequence[Transfer], number: int) -> Iterator[Request]:
        for transfer in transfers:
            if transfer.link is not None:
                yield transfer.link.take(number)
            begin_time = self._clock.time
            yield transfer.run(self._clock)
            if transfer.link is not None:
                transfer.link.give()
                self.on_link[transfer.name] = self.on_link.get(transfer.name, 0.0) + self._clock.time - begin_time

    def _note(
        self, number: int, replica: int, arrival_time: float, segments: Sequence[Segment], times: Sequence[SegmentTimes]
    ) -> None:
        first, last = times[0], times[-1]
        # A run begins when it is asked for: waiting for the device's turn is part of it, as the scheduler counts it.
        # Of a stage with steps it is all from the first to the last.
        ready, ran = (first.start, last.end) if self.stage.steps else (first.asked, first.ran)
        self.counters[replica].count_run(first.start - arrival_time, ready - first.start + last.end - ran, ran - ready)
        if self._trace is None:
            return
        begin = ready if self.stage.steps else first.begin
        spans = (("queue", arrival_time, first.start), ("copy", first.start, ready), ("run", begin, ran))
        for kind, start, stop in (*spans, ("copy", ran, last.end)):
            if kind in ("queue", "run") or stop > start:
                self._trace.add(self.stage.name, number, kind, start, stop, replica)
        if self.stage.steps:
            for segment, step in zip(segments, times, strict=True):
                unit = segment.unit
                self._trace.add(unit.name, number, "step", step.begin, step.ran, replica, unit.device)
