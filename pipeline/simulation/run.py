"""Run: a stream of frames through a simulated plan, from the entrance to the caller."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from pipeline.errors import PlanError
from pipeline.plans import Plan
from pipeline.scheduler.statistics import percentiles
from pipeline.scheduler.trace import Trace
from pipeline.scheduler.wiring import wire
from pipeline.simulation.clock import Clock, Request, Tokens
from pipeline.simulation.moves import moves
from pipeline.simulation.result import Simulation
from pipeline.simulation.station import Frame, Station, Transfer, Work

_END = -1
"""The number under which a frame's last stages are joined."""

_IDLE_KINDS = ("null", "simulated", "python")
"""Devices whose runs keep no core busy, so that stages on the same core do not wait for each other."""


def simulate(  # noqa: PLR0913 - all but the first by keyword
    plan: Plan,
    *,
    frames: int = 1000,
    fps: float | None = None,
    variance: float = 0.0,
    samples: Mapping[str, Sequence[float]] | None = None,
    seed: int = 0,
    trace: bool = False,
) -> Simulation:
    """Simulate a stream of frames through a plan, by the rules of the scheduler.

    Equal arguments give equal results.

    Parameters
    ----------
    plan : Plan
        Its times are used as they are; the part of them that is spent on a link waits for others on that link.
    frames : int
        How many, at least 2.
    fps : float, optional
        How many arrive per second, evenly; those that find no room wait.  By default each arrives as soon as it is
        taken.
    variance : float
        Standard deviation of a stage's time, as a share of it; times are distributed log-normally.
    samples : mapping of str to sequence of float, optional
        Seconds that a stage was measured to take; each frame gets one of them, drawn at random.
    seed : int
        Of what is drawn.
    trace : bool
        Whether to return the events.

    Returns
    -------
    Simulation

    Raises
    ------
    PlanError
        If a number is impossible, or the plan's times are all 0.
    """
    _check(plan, frames, fps, variance, samples or {})
    stream = _Stream(plan, frames, fps, Trace(limit=8 * frames * len(plan.stages)) if trace else None)
    stream.build(_times(plan, frames, variance, samples or {}, seed))
    return stream.run()


def _check(plan: Plan, frames: int, fps: float | None, variance: float, samples: Mapping[str, Sequence[float]]) -> None:
    if frames < 2:
        raise PlanError(f"frames is {frames}; a rate needs at least 2")
    if fps is not None and not (np.isfinite(fps) and fps > 0):
        raise PlanError(f"fps is {fps}; it must be above 0")
    if not (np.isfinite(variance) and variance >= 0):
        raise PlanError(f"variance is {variance}; it must be a share of a stage's time, at least 0")
    if unknown := samples.keys() - {stage.name for stage in plan.stages}:
        raise PlanError(f"samples of {min(unknown)!r}, but the plan has no such stage")
    if not any(stage.seconds for stage in plan.stages) and not samples:
        raise PlanError(f"the plan of {plan.model!r} has no times to simulate; plan again, with estimates or --measure")


def _times(
    plan: Plan, frames: int, variance: float, samples: Mapping[str, Sequence[float]], seed: int
) -> list[np.ndarray]:
    """Return for each stage the seconds of each frame.

    What a frame draws does not depend on the order of events, so that two plans can be compared on equal frames.
    """
    found = []
    for number, stage in enumerate(plan.stages):
        generator = np.random.default_rng([seed, number])
        if stage.name in samples:
            found.append(generator.choice(np.asarray(samples[stage.name], np.float64), frames))
            continue
        sigma = np.sqrt(np.log1p(variance**2))
        found.append(stage.seconds * generator.lognormal(-(sigma**2) / 2, sigma, frames))
    return found


class _Stream:
    """The entrance, the stations, and the books."""

    def __init__(self, plan: Plan, frames: int, fps: float | None, trace: Trace | None) -> None:
        self._plan, self._frames, self._fps, self._trace = plan, frames, fps, trace
        self._clock = Clock()
        self._wiring = wire(plan, [plan.board.device(stage.device).memory for stage in plan.stages])
        self._inside: deque[Frame] = deque()
        self._next = 0
        self._ends: list[float] = []
        self._latencies: list[float] = []
        self._since_arrival: list[float] = []
        self._stations: list[Station] = []

    def build(self, times: Sequence[np.ndarray]) -> None:
        plan, clock = self._plan, self._clock
        links: dict[tuple[str, ...], Tokens] = {link.ends: Tokens(clock, 1) for link in plan.board.links}
        cores = self._shared_cores()
        for number, stage in enumerate(plan.stages):
            before, after = (
                [Transfer(move.seconds, links.get(move.ends), " - ".join(move.ends)) for move in each]
                for each in moves(plan, self._wiring, number)
            )
            moving = sum(each.seconds for each in (*before, *after))
            work = [
                Work(
                    # What moves takes as long as it takes; the rest of the stage's time varies.
                    _without(times[number], min(moving, stage.seconds)),
                    before,
                    after,
                    [cores[core] for core in sorted(stage.cores_of(replica)) if core in cores],
                )
                for replica in range(stage.replicas)
            ]
            freed = self._settle if number in self._wiring.roots else _nothing
            self._stations.append(Station(clock, stage, work, freed, self._trace))
        for number, station in enumerate(self._stations):
            station.pass_on = self._route(number)

    def run(self) -> Simulation:
        for number in range(self._frames if self._fps else 1):
            self._clock.after(self._arrival(number), self._settle)
        self._clock.run()
        if len(self._ends) != self._frames:
            raise AssertionError(f"{self._frames} frames went in, {len(self._ends)} came out")
        plan, seconds = self._plan, self._clock.now
        return Simulation(
            model=plan.model,
            board=plan.board.name,
            frames=self._frames,
            seconds=seconds,
            frames_per_s=(self._frames - 1) / max(self._ends[-1] - self._ends[0], 1e-12),
            latency_s=percentiles(self._latencies),
            since_arrival_s=percentiles(self._since_arrival),
            stages=tuple(station.result(seconds) for station in self._stations),
            links=self._links(seconds),
            events=() if self._trace is None else self._trace.events(),
        )

    def _arrival(self, number: int) -> float:
        return number / self._fps if self._fps else 0.0

    def _settle(self) -> None:
        """Start the frames that have come and find room: inside, and in front of each first stage."""
        while (
            self._next < self._frames
            and self._arrival(self._next) <= self._clock.now
            and len(self._inside) < self._plan.frames_in_flight
            and self._reserve()
        ):
            # Without a rate, a frame comes when it is taken.
            arrived = self._arrival(self._next) if self._fps else self._clock.now
            frame = Frame(self._next, arrived, self._clock.now, self._joins)
            self._next += 1
            self._inside.append(frame)
            for number in self._wiring.roots:
                self._stations[number].put_reserved(frame)

    def _reserve(self) -> bool:
        roots = [self._stations[number].places for number in self._wiring.roots]
        if not all(places.free for places in roots):
            return False
        return all(places.try_take() for places in roots)

    @property
    def _joins(self) -> dict[int, int]:
        joins = {number: len(stage.predecessors) for number, stage in enumerate(self._wiring.stages)}
        joins[_END] = len(self._wiring.leaves)
        return {number: branches for number, branches in joins.items() if branches > 1}

    def _route(self, number: int) -> Callable[[Frame], Iterator[Request]]:
        successors = self._wiring.stages[number].successors

        def pass_on(frame: Frame) -> Iterator[Request]:
            for successor in successors:
                if frame.joined(successor):
                    yield from self._stations[successor].put(frame)
            if not successors and frame.joined(_END):
                frame.finished = True
                self._deliver()

        return pass_on

    def _deliver(self) -> None:
        """Let the frames out whose turn it is; one that is ready early still counts as inside."""
        now = self._clock.now
        while self._inside and self._inside[0].finished:
            frame = self._inside.popleft()
            self._ends.append(now)
            self._latencies.append(now - frame.started)
            self._since_arrival.append(now - frame.arrived)
        self._settle()

    def _shared_cores(self) -> dict[int, Tokens]:
        computing = [
            stage for stage in self._plan.stages if self._plan.board.device(stage.device).kind not in _IDLE_KINDS
        ]
        users = Counter(chain.from_iterable(set(stage.cores) for stage in computing))
        return {core: Tokens(self._clock, 1) for core, number in users.items() if number > 1}

    def _links(self, seconds: float) -> dict[str, float]:
        names = dict.fromkeys(name for station in self._stations for name in station.on_link)
        return {name: sum(each.on_link.get(name, 0.0) for each in self._stations) / seconds for name in names}


def _without(seconds: np.ndarray, moving: float) -> Callable[[int], float]:
    computing: list[float] = np.maximum(seconds - moving, 0.0).tolist()
    return computing.__getitem__


def _nothing() -> None:
    pass
