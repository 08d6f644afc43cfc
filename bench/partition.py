"""Time to divide a long chain, and its growth with the length.

The costs are drawn, with crossing costs as large as the items' own, for as many cores as stages.  Cuts are looked for
at a bounded number of positions, so that the time should grow with the length at most; what each length takes over the
one before, divided by how much longer it is, is `growth` (1 is linear).
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import numpy as np
from report import Row, median, parser, report

from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import Problem, Processor
from pipeline.split.planning.solver.chain_solver import ChainSolver

# Far beyond any network: a step that is quadratic in secret shows as a growth of ten.
ITEMS = (1_000, 10_000, 100_000)
STAGES = (2, 4, 16)


def seconds(items: int, stages: int, repeats: int) -> float:
    """Return the median time of one division."""
    problem = long_chain(items, stages)
    times = []
    for _ in range(repeats):
        begin = perf_counter()
        ChainSolver(problem).fastest()
        times.append(perf_counter() - begin)
    return median(times)


def long_chain(items: int, stages: int) -> Problem:
    """Return a chain for so many cores that are alike, one for each stage."""
    # Exponential: a few items take most of the time, as operators of networks do.
    generator = np.random.default_rng(items)
    compute, crossing_costs = generator.exponential(1, items), generator.exponential(1, items + 1)
    enter, leave = np.zeros((2, 1, items + 1)), np.zeros((1, 2, items + 1))
    # What the caller gives and gets costs nothing here.
    enter[0, 0] = leave[0, 0] = crossing_costs
    choice = Choice(0, (1,), compute, threads=1)
    return Problem((Processor("cpu", stages),), (choice,), enter, leave, stages=((0,),) * stages)


def rows(repeats: int) -> Iterator[Row]:
    """Yield one row for each number of stages and items."""
    for stages in STAGES:
        shorter: tuple[int, float] | None = None
        for items in ITEMS:
            duration = seconds(items, stages, repeats)
            growth = None if shorter is None else duration / shorter[1] / (items / shorter[0])
            yield {"stages": stages, "items": items, "seconds": duration, "growth": growth}
            shorter = items, duration


def main() -> None:
    """Measure, print and write."""
    arguments = parser(__doc__).parse_args()
    table = list(rows(3 if arguments.quick else 9))
    report("Dividing a chain", table, "growth: time over the length before, over how much longer it is", arguments.json)


if __name__ == "__main__":
    main()
