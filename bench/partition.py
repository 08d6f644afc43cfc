"""How long does dividing a long chain take, and how does it grow?

The costs are drawn, with crossing costs as large as the items' own.  The number of trials follows from the digits
of a float, so that the time should grow with the length; what each length takes over the one before, divided by
how much longer it is, is `growth` (1 is linear).
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import numpy as np
from report import Row, median, parser, report

from pipeline.split.partition import partition

ITEMS = (1_000, 10_000, 100_000)
STAGES = (2, 4, 16)


def seconds(items: int, stages: int, repeats: int) -> float:
    """Return the median time of one division."""
    generator = np.random.default_rng(items)
    compute, crossing = generator.exponential(1, items), generator.exponential(1, items - 1)
    times = []
    for _ in range(repeats):
        begin = perf_counter()
        partition(compute, crossing, stages)
        times.append(perf_counter() - begin)
    return median(times)


def rows(repeats: int) -> Iterator[Row]:
    """Yield one row for each number of stages and items."""
    for stages in STAGES:
        before: tuple[int, float] | None = None
        for items in ITEMS:
            took = seconds(items, stages, repeats)
            growth = None if before is None else took / before[1] / (items / before[0])
            yield {"stages": stages, "items": items, "seconds": took, "growth": growth}
            before = items, took


def main() -> None:
    """Measure, print and write."""
    arguments = parser(__doc__).parse_args()
    found = list(rows(3 if arguments.quick else 9))
    report("Dividing a chain", found, "growth: time over the length before, over how much longer it is", arguments.json)


if __name__ == "__main__":
    main()
