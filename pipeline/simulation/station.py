"""Station: a simulated stage: the queue in front of it, and its workers, by the rules of the scheduler.

A worker takes a frame, which frees the frame's place in the queue at once; waits for the cores that it shares with
other stages; brings tensors in, computes (on a device that computes one frame at a time once it is free) and hands
tensors out; leaves the cores; needs a moment to hand the frame on; and only then waits for a place in each next queue,
holding its frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pipeline.plans import StagePlan
from pipeline.scheduler.statistics import StageCounters, percentiles
from pipeline.scheduler.trace import Trace
from pipeline.simulation.clock import Clock, Process, Request, Tokens
from pipeline.simulation.result import SimulatedStage


class Frame:
    """A frame on its way.

    Attributes
    ----------
    number : int
    arrived, started : float
        When it came to the entrance, and when it went in.
    missing : dict of int to int
        For each stage that joins branches, how many of them have not come yet.
    finished : bool
    """

    __slots__ = ("arrived", "finished", "missing", "number", "started")

    def __init__(self, number: int, arrived: float, started: float, joins: dict[int, int]) -> None:
        self.number, self.arrived, self.started = number, arrived, started
        self.missing = dict(joins)
        self.finished = False

    def joined(self, stage: int) -> bool:
        """Note that a branch has come to a stage, and return whether it was the last one."""
        if stage not in self.missing:
            return True
        self.missing[stage] -= 1
        return not self.missing[stage]


@dataclass(frozen=True)
class Transfer:
    """Bytes that move before or after a run.

    Attributes
    ----------
    seconds : float
    link : Tokens or None
        What only one transfer at a time may use.
    name : str
        The link's; empty without one.
    """

    seconds: float
    link: Tokens | None = None
    name: str = ""


@dataclass(frozen=True)
class Work:
    """What a worker does with a frame.

    Attributes
    ----------
    seconds : callable
        Returns how long computing takes for a frame's number.
    before, after : sequence of Transfer
    cores : sequence of Tokens
        Cores that other stages compute on as well, in the order in which all take them.
    device : Tokens or None
        What computes one frame at a time, while tensors of others move.
    overhead : float
        Seconds that the scheduler takes to hand the frame on.
    """

    seconds: Callable[[int], float]
    before: Sequence[Transfer] = ()
    after: Sequence[Transfer] = ()
    cores: Sequence[Tokens] = ()
    device: Tokens | None = None
    overhead: float = 0.0


class Station:
    """One stage.

    Parameters
    ----------
    clock : Clock
    stage : StagePlan
    work : sequence of Work
        For each replica.
    freed : callable
        Called when a frame has left the queue.
    trace : Trace or None

    Attributes
    ----------
    places : Tokens
        Free places in the queue.
    counters : list of StageCounters
        Of each worker, as the scheduler's own count.
    pass_on : callable
        Returns the requests with which a frame goes on; set once all stations are there.
    on_link : dict of str to float
        Seconds for which each link was in use.
    """

    def __init__(
        self, clock: Clock, stage: StagePlan, work: Sequence[Work], freed: Callable[[], None], trace: Trace | None
    ) -> None:
        self.stage, self._clock, self._freed, self._trace = stage, clock, freed, trace
        self.places = Tokens(clock, stage.queue_depth)
        self.pass_on: Callable[[Frame], Iterator[Request]]
        self.on_link: dict[str, float] = {}
        self._frames: deque[tuple[Frame, float]] = deque()
        self._ready = Tokens(clock, 0)
        self._blocked = 0.0
        self._longest = 0
        self._waits: list[float] = []
        self.counters = [StageCounters() for _ in work]
        for replica, each in enumerate(work):
            clock.start(self._serve(each, replica))

    def put(self, frame: Frame) -> Iterator[Request]:
        """Wait for a place in the queue, then go into it."""
        yield self.places.take()
        self.put_reserved(frame)

    def put_reserved(self, frame: Frame) -> None:
        """Go into the queue, on a place that is taken already."""
        self._frames.append((frame, self._clock.now))
        self._ready.give()
        # Those that the workers at leisure take up at once do not wait.
        self._longest = max(self._longest, self._ready.free)

    def result(self, seconds: float) -> SimulatedStage:
        """Return what happened in `seconds`."""
        whole = seconds * self.stage.replicas or 1.0
        return SimulatedStage(
            name=self.stage.name,
            device=self.stage.device,
            frames=len(self._waits),
            busy=sum(each.busy_s for each in self.counters) / whole,
            blocked=self._blocked / whole,
            queue_mean=sum(self._waits) / (seconds or 1.0),
            queue_longest=self._longest,
            wait_s=percentiles(self._waits),
            replicas=self.stage.replicas,
        )

    def _serve(self, work: Work, replica: int) -> Process:
        clock = self._clock
        while True:
            yield self._ready.take()
            frame, queued = self._frames.popleft()
            self.places.give()
            self._freed()
            self._waits.append(clock.now - queued)
            for core in work.cores:
                yield core.take()
            taken = clock.now
            yield from self._move(work.before)
            ready = clock.now
            if work.device is not None:
                yield work.device.take()
            began = clock.now
            yield clock.sleep(work.seconds(frame.number))
            if work.device is not None:
                work.device.give()
            ran = clock.now
            yield from self._move(work.after)
            self._note(frame.number, replica, (queued, taken, ready, began, ran, clock.now))
            for core in work.cores:
                core.give()
            yield clock.sleep(work.overhead)
            left = clock.now
            yield from self.pass_on(frame)
            self._blocked += clock.now - left

    def _move(self, transfers: Sequence[Transfer]) -> Iterator[Request]:
        for transfer in transfers:
            if transfer.link is not None:
                yield transfer.link.take()
            yield self._clock.sleep(transfer.seconds)
            if transfer.link is not None:
                transfer.link.give()
                self.on_link[transfer.name] = self.on_link.get(transfer.name, 0.0) + transfer.seconds

    def _note(self, number: int, replica: int, times: tuple[float, ...]) -> None:
        queued, taken, ready, _, ran, end = times
        # A run begins when it is asked for: waiting for the device's turn is part of it, as the scheduler counts it.
        self.counters[replica].ran(taken - queued, ready - taken + end - ran, ran - ready)
        if self._trace is not None:
            for kind, start, stop in zip(("queue", "copy", "wait", "run", "copy"), times, times[1:], strict=False):
                if kind in ("queue", "run") or (kind == "copy" and stop > start):
                    self._trace.add(self.stage.name, number, kind, start, stop, replica)
