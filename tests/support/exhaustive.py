"""Exhaustive search over legal plans, and problems to try it on: the reference of the solver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.split.planning.problem.arrays import span_sums
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import MemoryLimit, Problem, Processor, Resource

TOLERANCE = 1 + 1e-9


@dataclass(frozen=True)
class LegalPlan:
    """A legal plan: seconds between two frames, of one frame, and joules of one frame."""

    interval: float
    latency: float
    joules: float


PlanStage = tuple[Choice, int, int, float, float, float]
"""A stage: choice, begin, end, and seconds of computing, entering and leaving."""


def legal_plans(problem: Problem) -> Iterator[LegalPlan]:
    """Yield every legal plan, by the words of the documentation; nothing is left out for being slow."""
    caller = len(problem.processors)

    def extend(
        begin: int, previous: int, processor: int, units: tuple[int, ...], stages: tuple[PlanStage, ...]
    ) -> Iterator[LegalPlan]:
        for choice in _choices(problem, processor, len(stages)):
            free = tuple(count - taken for count, taken in zip(units, choice.use, strict=True))
            if min(free) < 0:
                continue
            for end in range(begin + 1, problem.items + 1):
                compute = span_seconds(choice, begin, end)
                if not np.isfinite(compute):
                    continue
                for following in [caller] if end == problem.items else range(caller):
                    stage = (choice, begin, end, compute, problem.enter[previous, processor, begin])
                    path = (*stages, (*stage, problem.leave[processor, following, end]))
                    if end < problem.items:
                        yield from extend(end, processor, following, free, path)
                    elif len(path) == len(problem.stages or path) and (plan := evaluate(problem, path)):
                        yield plan

    for first in range(caller):
        yield from extend(0, caller, first, tuple(processor.units for processor in problem.processors), ())


def span_seconds(choice: Choice, begin: int, end: int) -> float:
    """Return what a stage computes."""
    return float(choice.seconds[begin:end].sum() if choice.spans is None else choice.spans[end, begin])


def _choices(problem: Problem, processor: int, stage: int) -> list[Choice]:
    if problem.stages and (stage == len(problem.stages) or processor not in problem.stages[stage]):
        return []
    return [choice for choice in problem.choices if choice.processor == processor]


def evaluate(problem: Problem, stages: tuple[PlanStage, ...]) -> LegalPlan | None:
    """Return the times of a plan, None if something does not fit."""
    loads = [0.0] * len(problem.resources)
    sizes = [0.0] * len(problem.memories)
    slowest = latency = joules = 0.0
    if not all(np.isfinite(enter + leave) for *_, enter, leave in stages):
        return None
    for resource, seconds in _border_loads(problem, stages):
        loads[resource] += seconds
    for choice, begin, end, compute, enter, leave in stages:
        processor, seconds, moving = problem.processors[choice.processor], compute + enter + leave, enter + leave
        with_hop = seconds + problem.hop_s
        interval = (max(compute, with_hop / 2) if processor.overlaps else with_hop) / choice.replicas
        if choice.factors:
            interval = 1 / sum(1 / (compute * factor + moving + problem.hop_s) for factor in choice.factors)
            seconds = choice.replicas / sum(1 / (compute * factor + moving) for factor in choice.factors)
        slowest = max(slowest, interval)
        for resource, load in choice.loads.items():
            loads[resource] += float(load[begin:end].sum())
        latency += compute * max(choice.factors, default=1.0) + moving + problem.hop_s
        joules += choice.watts * seconds
        for index, memory in enumerate(problem.memories):
            if choice.processor in memory.processors:
                assert problem.parameters is not None
                assert problem.workspace is not None
                assert problem.queue_bytes is not None
                footprint = problem.parameters[begin:end].sum() + problem.workspace[begin:end].max()
                sizes[index] += choice.replicas * footprint + problem.queue_bytes[begin]
    if any(size > memory.nbytes * TOLERANCE for size, memory in zip(sizes, problem.memories, strict=True)):
        return None
    return LegalPlan(max([slowest, *loads]), latency, joules)


def _border_loads(problem: Problem, stages: tuple[PlanStage, ...]) -> Iterator[tuple[int, float]]:
    """Yield the resources that tensors use on their way in and out, with the seconds."""
    # The caller stands before the first stage and behind the last one.
    ends = [len(problem.processors), *(choice.processor for choice, *_ in stages), len(problem.processors)]
    for index, (choice, begin, end, *_) in enumerate(stages):
        for resource, border in problem.enter_loads.items():
            yield resource, float(border[ends[index], choice.processor, begin])
        for resource, border in problem.leave_loads.items():
            yield resource, float(border[choice.processor, ends[index + 2], end])


def random_problem(
    seed: int,
    items: int,
    *,
    turns: bool = False,
    memories: bool = False,
    runtimes: bool = False,
    big_cores: int = 2,
    little_cores: int = 0,
) -> Problem:
    """Return a board with cores of one or two kinds, a GPU and another accelerator that cannot run everything.

    With `runtimes`, another one runs on the same cores, whose times do not add up, and which cannot begin everywhere.
    """
    generator = np.random.default_rng(seed)
    base = generator.exponential(1, items)
    processors = [Processor("big", big_cores), *([Processor("little", little_cores)] if little_cores else [])]
    clusters = len(processors)
    processors += [
        Processor("gpu", 2 if turns else 1),
        Processor("npu", overlaps=bool(generator.integers(2))),
    ]
    choices = [
        Choice(
            kind,
            units_of(processors, kind, threads * copies),
            base * slower * (0.2 + 0.8 / threads),
            copies,
            threads,
            watts,
        )
        for kind, (count, slower, watts) in enumerate([(big_cores, 1.0, 2.0), (little_cores, 3.0, 0.4)][:clusters])
        for threads in range(1, count + 1)
        for copies in range(1, count // threads + 1)
    ]
    if runtimes:
        fused = generator.uniform(1, 1.7, (items + 1, items + 1))
        fused[:, generator.random(items + 1) < 0.3] = np.inf
        choices += [
            replace(choice, seconds=seconds, spans=span_sums(seconds) * fused, device="other")
            for choice, seconds in [(choice, choice.seconds * generator.uniform(0.6, 1.1)) for choice in choices]
        ]
    for processor in (clusters, clusters + 1):
        seconds = base * generator.uniform(0.1, 1.5) * generator.uniform(0.5, 2, items)
        seconds[generator.random(items) < 0.25] = np.inf
        watts, loads = generator.uniform(0.5, 5), {0: seconds} if turns and processor == clusters else {}
        choices.append(Choice(processor, units_of(processors, processor, 1), seconds, watts=watts, loads=loads))
    crossing_costs = generator.exponential(0.3, items + 1)
    enter, leave = borders([0] * clusters + [1, 2], crossing_costs)
    limits: dict[str, Any] = {}
    if memories:
        host = MemoryLimit(generator.uniform(0.8, 2) * items, tuple(range(clusters)))
        limits = {
            "memories": (host, MemoryLimit(0.7 * items, (clusters,))),
            "parameters": generator.uniform(0, 2, items),
            "workspace": generator.uniform(0, 0.5, items),
            "queue_bytes": generator.uniform(0, 0.3, items + 1),
        }
    resources = (Resource("gpu"),) if turns else ()
    return Problem(tuple(processors), tuple(choices), enter, leave, resources=resources, **limits)


def units_of(processors: Sequence[Processor], processor: int, units: int) -> tuple[int, ...]:
    return tuple(units if index == processor else 0 for index in range(len(processors)))


def borders(memories: list[int], crossing_costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what it costs to come and go where memory 0 is the caller's: the side elsewhere pays."""
    size, sides = len(memories), [*memories, 0]
    enter, leave = np.zeros((size + 1, size, len(crossing_costs))), np.zeros((size, size + 1, len(crossing_costs)))
    for end in range(size + 1):
        for processor in range(size):
            if memories[processor] and memories[processor] != sides[end]:
                enter[end, processor] = leave[processor, end] = crossing_costs
    return enter, leave


def uniform_chain(compute: NDArray[np.float64], crossing_costs: NDArray[np.float64], stages: int) -> Problem:
    """Return a chain on cores that are alike, one for each stage; `crossing_costs` are of inner positions."""
    seconds = np.concatenate([[0.0], crossing_costs, [0.0]])
    enter, leave = np.zeros((2, 1, len(seconds))), np.zeros((1, 2, len(seconds)))
    enter[0, 0] = leave[0, 0] = seconds
    choice = Choice(0, (1,), compute, threads=1)
    return Problem((Processor("cpu", stages),), (choice,), enter, leave, stages=((0,),) * stages)


def fastest_interval(compute: NDArray[np.float64], crossing_costs: NDArray[np.float64], stages: int) -> float:
    """Return the interval of the best division of `uniform_chain`, however long it is.

    By bisection: an end can be reached within a limit if the start that is best for it can, one stage earlier.
    """
    prefix = np.concatenate([[0.0], np.cumsum(compute)])
    border = np.concatenate([[0.0], crossing_costs, [0.0]])
    low, high = 0.0, float(prefix[-1] + 2 * border.max())
    while high - low > 1e-12 * high:
        limit = (low + high) / 2
        starts = np.full(len(prefix), -np.inf)
        starts[0] = 0.0
        for _ in range(stages):
            best = np.concatenate([[-np.inf], np.maximum.accumulate(starts)[:-1]])
            reachable = prefix + border - best <= limit
            starts = np.where(reachable, prefix - border, -np.inf)
        low, high = (low, limit) if reachable[-1] else (limit, high)
    return high
