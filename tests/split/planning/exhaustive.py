"""Exhaustive search over legal plans, and problems to try it on: what the solver is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.split.planning.problem import Choice, Memory, Place, Problem

TOLERANCE = 1 + 1e-9


@dataclass(frozen=True)
class Found:
    """A legal plan: seconds between two frames, of one frame, and joules of one frame."""

    interval: float
    latency: float
    joules: float


Part = tuple[Choice, int, int, float, float, float]
"""A stage: choice, begin, end, and seconds of computing, entering and leaving."""


def plans(problem: Problem, stages: int | None = None) -> Iterator[Found]:
    """Yield every legal plan, by the words of the documentation; nothing is left out for being slow."""
    caller = len(problem.places)
    units = tuple(place.units for place in problem.places)

    def go(begin: int, before: int, place: int, left: tuple[int, ...], so_far: tuple[Part, ...]) -> Iterator[Found]:
        for choice in problem.choices:
            rest = tuple(one - other for one, other in zip(left, choice.use, strict=True))
            if choice.place != place or min(rest) < 0:
                continue
            for end in range(begin + 1, problem.items + 1):
                compute = float(choice.seconds[begin:end].sum())
                if not np.isfinite(compute):
                    break
                for after in [caller] if end == problem.items else range(caller):
                    stage = (choice, begin, end, compute, problem.enter[before, place, begin])
                    done = (*so_far, (*stage, problem.leave[place, after, end]))
                    if end < problem.items:
                        yield from go(end, place, after, rest, done)
                    elif (stages in (None, len(done))) and (found := measured(problem, done)):
                        yield found

    for first in range(caller):
        yield from go(0, caller, first, units, ())


def measured(problem: Problem, stages: tuple[Part, ...]) -> Found | None:
    """Return what a plan takes, None if something does not fit."""
    loads = dict.fromkeys(range(len(problem.places)), 0.0)
    held = [0.0] * len(problem.memories)
    slowest = latency = joules = 0.0
    if not all(np.isfinite(enter + leave) for *_, enter, leave in stages):
        return None
    for choice, begin, end, compute, enter, leave in stages:
        overlaps = problem.places[choice.place].overlaps
        whole = compute + enter + leave
        interval = (max(compute, whole / 2) if overlaps else whole) / choice.replicas
        slowest = max(slowest, interval)
        loads[choice.place] += interval if problem.places[choice.place].shares else 0.0
        latency += compute + enter + leave
        joules += choice.watts * (compute + enter + leave)
        for number, memory in enumerate(problem.memories):
            if choice.place in memory.places:
                assert problem.parameters is not None
                assert problem.working is not None
                assert problem.waiting is not None
                kept = problem.parameters[begin:end].sum() + problem.working[begin:end].max()
                held[number] += choice.replicas * kept + problem.waiting[begin]
    if any(size > memory.limit * TOLERANCE for size, memory in zip(held, problem.memories, strict=True)):
        return None
    return Found(max(slowest, *loads.values()), latency, joules)


def drawn(
    seed: int, items: int, *, shares: bool = False, memories: bool = False, big: int = 2, little: int = 0
) -> Problem:
    """Return a board with cores of one or two kinds, a GPU and another accelerator that cannot run everything."""
    generator = np.random.default_rng(seed)
    base = generator.exponential(1, items)
    places = [Place("big", big), *([Place("little", little)] if little else [])]
    cores = len(places)
    places += [Place("gpu", 2 if shares else 1, shares), Place("npu", overlaps=bool(generator.integers(2)))]
    choices = [
        Choice(kind, use(places, kind, threads * copies), base * slower * (0.2 + 0.8 / threads), copies, threads, watts)
        for kind, (count, slower, watts) in enumerate([(big, 1.0, 2.0), (little, 3.0, 0.4)][:cores])
        for threads in range(1, count + 1)
        for copies in range(1, count // threads + 1)
    ]
    for place in (cores, cores + 1):
        seconds = base * generator.uniform(0.1, 1.5) * generator.uniform(0.5, 2, items)
        seconds[generator.random(items) < 0.25] = np.inf
        choices.append(Choice(place, use(places, place, 1), seconds, watts=generator.uniform(0.5, 5)))
    crossing = generator.exponential(0.3, items + 1)
    enter, leave = borders([0] * cores + [1, 2], crossing)
    limits: dict[str, Any] = {}
    if memories:
        own = Memory(generator.uniform(0.8, 2) * items, tuple(range(cores)))
        limits = {
            "memories": (own, Memory(0.7 * items, (cores,))),
            "parameters": generator.uniform(0, 2, items),
            "working": generator.uniform(0, 0.5, items),
            "waiting": generator.uniform(0, 0.3, items + 1),
        }
    return Problem(tuple(places), tuple(choices), enter, leave, **limits)


def use(places: list[Place], place: int, units: int) -> tuple[int, ...]:
    return tuple(units if number == place else 0 for number in range(len(places)))


def borders(memories: list[int], crossing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what it costs to come and go where memory 0 is the caller's: the side elsewhere pays."""
    size, sides = len(memories), [*memories, 0]
    enter, leave = np.zeros((size + 1, size, len(crossing))), np.zeros((size, size + 1, len(crossing)))
    for other in range(size + 1):
        for own in range(size):
            if memories[own] and memories[own] != sides[other]:
                enter[other, own] = leave[own, other] = crossing
    return enter, leave
