"""Run: a frame stream through a simulated plan, entrance to caller."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from pipeline.core.plan.moves import find_moves
from pipeline.core.plan.plan import Plan
from pipeline.core.renaming import refuse_renamed
from pipeline.errors import PlanError
from pipeline.prediction.borrowing import stage_parts
from pipeline.prediction.contention import WAKING_S
from pipeline.scheduler.admission import Admission
from pipeline.scheduler.forecast import Forecast
from pipeline.scheduler.statistics import percentiles
from pipeline.scheduler.trace import Trace
from pipeline.scheduler.wiring import wire
from pipeline.simulation.arrivals import EVEN, arrival_times, draw_durations
from pipeline.simulation.clock import Clock, Request
from pipeline.simulation.entrance import Entrance
from pipeline.simulation.result import Simulation
from pipeline.simulation.segments import SharedResources
from pipeline.simulation.station import SimulatedFrame, Station, Work

OVERHEAD_S = WAKING_S
"""Seconds of the scheduler per frame and stage, by default."""

# Stages count from 0.
_END = -1
"""The number under which a frame's last stages are joined."""


@refuse_renamed(variance="cv")
def simulate(  # noqa: PLR0913 - all but the first by keyword
    plan: Plan,
    *,
    frames: int | None = None,
    fps: float | None = None,
    arrivals: str | Sequence[float] = EVEN,
    cv: float = 0.0,
    samples: Mapping[str, Sequence[float]] | None = None,
    seed: int = 0,
    trace: bool = False,
    admission: str = "block",
    waiting: int = 0,
    deadline: float = math.inf,
    overhead: float = OVERHEAD_S,
) -> Simulation:
    """Simulate a frame stream through a plan, by the scheduler's rules.

    Equal arguments give equal results.

    Parameters
    ----------
    plan : Plan
        Plan whose times are used unchanged; the part of them that is spent on a link waits for others on that link.
    frames : int, optional
        Number of frames, at least 2: by default 1000, or as many as `arrivals` has.
    fps : float, optional
        Arrivals per second.  By default each arrives as soon as it is taken.
    arrivals : str or sequence of float
        Distribution of arrivals at this rate: ``"even"`` (default) or ``"poisson"``, each independently of the others.
        Or the seconds at which each of them came, as recorded.
    cv : float
        Coefficient of variation of a stage's time, its standard deviation as a share of it; times are
        distributed log-normally.
    samples : mapping of str to sequence of float, optional
        Seconds that a stage was measured to take; each frame gets one of them, drawn at random.
    seed : int
        Seed of the draws.
    trace : bool
        True returns the events.
    admission, waiting, deadline : str, int, float
        Treatment of frames that find no room, as for `pipeline.Pipeline`; where some are dropped, they need `fps` or
        recorded `arrivals`.
    overhead : float
        Seconds that a worker needs, besides running, to hand a frame on and to take the next one, or to wake up when it
        has waited for a device that it borrows: 50 us by default; a slow processor takes more.  It counts where stages
        are short.

    Returns
    -------
    Simulation

    Raises
    ------
    PlanError
        If a number is impossible, or the plan's times are all 0.
    """
    _check(plan, fps, samples or {}, cv=cv, overhead=overhead)
    _check_whole(frames=frames, seed=seed)
    count, times = arrival_times(arrivals, frames, fps, seed)
    # Filling the pipeline is no part of the rate, which is counted from the first result to the last.
    if count < 2:
        raise PlanError(f"frames is {count}; a rate needs at least 2")
    policy = _admission(admission, waiting, deadline, has_arrivals=times is not None)
    stream = _Stream(plan, count, times, policy, Trace(limit=8 * count * len(plan.stages)) if trace else None)
    # All drawn before the first event, so that the order of events changes nothing about them.
    stream.build(draw_durations(plan, count, cv, samples or {}, seed), overhead)
    return stream.run()


def _admission(policy: str, waiting_count: int, deadline: float, *, has_arrivals: bool) -> Admission:
    try:
        rules = Admission(policy, waiting_count, deadline)
    except ValueError as error:
        raise PlanError(str(error)) from None
    if rules.drops and not has_arrivals:
        raise PlanError(f"admission {policy!r} drops frames that come too fast; say with fps how many come per second")
    return rules


def _check(plan: Plan, fps: float | None, samples: Mapping[str, Sequence[float]], **not_negative: float) -> None:
    if fps is not None and not (np.isfinite(fps) and fps > 0):
        raise PlanError(f"fps is {fps}; it must be above 0")
    for name, value in not_negative.items():
        if not (np.isfinite(value) and value >= 0):
            raise PlanError(f"{name} is {value}; it must be at least 0")
    if unknown := samples.keys() - {stage.name for stage in plan.stages}:
        raise PlanError(f"samples of {min(unknown)!r}, but the plan has no such stage")
    for name, seconds in samples.items():
        if not len(seconds) or not all(np.isfinite(interval) and interval >= 0 for interval in seconds):
            raise PlanError(
                f"samples of {name!r} are no seconds of at least 0; give what the stage was measured to take"
            )
    if not any(stage.seconds for stage in plan.stages) and not samples:
        raise PlanError(f"the plan of {plan.model!r} has no times to simulate; plan again, with estimates or --measure")


def _check_whole(**numbers: object) -> None:
    for name, number in numbers.items():
        if number is not None and (not isinstance(number, (int, np.integer)) or number < 0):
            raise PlanError(f"{name} is {number!r}; it must be a whole number of at least 0")


class _Stream:
    """Entrance, stations and accounts of a stream."""

    def __init__(
        self, plan: Plan, frames: int, arrivals: np.ndarray | None, admission: Admission, trace: Trace | None
    ) -> None:
        self._plan, self._frames, self._admission, self._trace = plan, frames, admission, trace
        # A list: its floats are Python's, which results are read as.
        self._arrivals: list[float] | None = None if arrivals is None else arrivals.tolist()
        self._clock = Clock()
        self._wiring = wire(plan, [plan.board.device(stage.device).memory for stage in plan.stages])
        # In the order of submission, in which results leave: the first one decides when the others may.
        self._inside: deque[SimulatedFrame] = deque()
        self._ends: list[float] = []
        self._latencies: list[float] = []
        self._since_arrival: list[float] = []
        self._stations: list[Station] = []

    def build(self, times: Sequence[Sequence[np.ndarray]], overhead: float) -> None:
        plan, clock = self._plan, self._clock
        shared = SharedResources(clock, plan)
        for number, (stage, parts) in enumerate(zip(plan.stages, stage_parts(plan, find_moves(plan)), strict=True)):
            work = [
                Work(
                    shared.segments(stage, parts, replica, times[number][replica]),
                    [shared.cores[core] for core in sorted(stage.cores_of(replica)) if core in shared.cores],
                    overhead,
                )
                for replica in range(stage.replicas)
            ]
            # Only a place in front of a first stage lets a frame start; later ones are waited for by workers.
            on_departure = self._settle if number in self._wiring.roots else _do_nothing
            self._stations.append(Station(clock, stage, work, on_departure, self._trace))
        for number, station in enumerate(self._stations):
            # Once all stations are there, since a route refers to those behind it.
            station.pass_on = self._route(number)
        self._forecast = Forecast(plan, self._wiring, [station.counters for station in self._stations])
        self._entrance = Entrance(self._frames, self._arrivals, self._admission, self._forecast)

    def run(self) -> Simulation:
        # Without arrivals all frames are there from the start, and each end lets the next one in.
        for number in range(1 if self._arrivals is None else self._frames):
            self._clock.schedule(self._entrance.arrival(number), self._settle)
        # Until nothing is due: each frame has left or been dropped by then, or the rules let a plan block itself.
        self._clock.run()
        plan, seconds, count = self._plan, self._clock.time, len(self._ends)
        if count + self._entrance.drops.total() != self._frames:
            raise AssertionError(f"{self._frames} frames came, {count} went, dropped: {self._entrance.drops}")
        return Simulation(
            model=plan.model,
            board=plan.board.name,
            frames=self._frames,
            seconds=seconds,
            delivered=count,
            dropped=dict(self._entrance.drops),
            frames_per_s=(count - 1) / max(self._ends[-1] - self._ends[0], 1e-12) if count > 1 else 0.0,
            latency_s=percentiles(self._latencies),
            since_arrival_s=percentiles(self._since_arrival),
            stages=tuple(station.result(seconds) for station in self._stations),
            links=self._links(seconds),
            events=() if self._trace is None else self._trace.events(),
        )

    def _settle(self) -> None:
        """Start arrived frames with room."""
        time = self._clock.time
        for number in self._entrance.admit(time, self._reserve):
            # Without arrivals, a frame comes when it is taken.
            arrival_time = time if self._arrivals is None else self._arrivals[number]
            frame = SimulatedFrame(number, arrival_time, time, self._joins)
            self._inside.append(frame)
            self._forecast.starts += 1
            for root in self._wiring.roots:
                self._stations[root].put_reserved(frame)

    def _reserve(self) -> bool:
        """Reserve room inside and at all first stages; return success."""
        # All are looked at before one is taken: the place of a frame that does not start would never be free again.
        roots = [self._stations[number].places for number in self._wiring.roots]
        if len(self._inside) >= self._plan.frames_in_flight or not all(queue.free for queue in roots):
            return False
        return all(queue.try_take() for queue in roots)

    @property
    def _joins(self) -> dict[int, int]:
        joins = {number: len(stage.predecessors) for number, stage in enumerate(self._wiring.stages)}
        joins[_END] = len(self._wiring.leaves)
        return {number: branches for number, branches in joins.items() if branches > 1}

    def _route(self, number: int) -> Callable[[SimulatedFrame], Iterator[Request]]:
        successors = self._wiring.stages[number].successors

        def pass_on(frame: SimulatedFrame) -> Iterator[Request]:
            for successor in successors:
                if frame.join_branch(successor):
                    yield from self._stations[successor].put(frame)
            if not successors and frame.join_branch(_END):
                frame.is_complete = True
                self._deliver()

        return pass_on

    def _deliver(self) -> None:
        """Deliver frames in order; early ones count as inside."""
        time = self._clock.time
        while self._inside and self._inside[0].is_complete:
            frame = self._inside.popleft()
            self._ends.append(time)
            self._latencies.append(time - frame.start_time)
            self._since_arrival.append(time - frame.arrival_time)
        self._settle()

    def _links(self, seconds: float) -> dict[str, float]:
        names = dict.fromkeys(name for station in self._stations for name in station.on_link)
        return {name: sum(station.on_link.get(name, 0.0) for station in self._stations) / seconds for name in names}


def _do_nothing() -> None:
    pass
