"""A memory serves all runs at the same time, in equal parts."""

from __future__ import annotations

import pytest

from pipeline.simulation.clock import Clock, Process
from pipeline.simulation.segments import Bandwidth


def ends(*runs: tuple[float, float, float], bytes_per_s: float = 10.0) -> list[float]:
    """Return when runs end that begin at a time, move bytes and compute for some seconds."""
    clock = Clock()
    memory, result = Bandwidth(clock, bytes_per_s), [0.0] * len(runs)

    def run(number: int, begin: float, nbytes: float, seconds: float) -> Process:
        yield clock.sleep(begin)
        yield memory.serve(nbytes, seconds)
        result[number] = clock.time

    for number, arguments in enumerate(runs):
        clock.start(run(number, *arguments))
    clock.run()
    return result


def test_a_run_alone_takes_the_longer_of_computing_and_its_bytes() -> None:
    assert ends((0, 20, 1)) == [2]
    assert ends((0, 20, 3)) == [3]


def test_runs_that_need_as_much_end_together() -> None:
    assert ends((0, 20, 0), (0, 20, 0)) == [4, 4]


def test_who_needs_less_is_done_sooner_and_leaves_the_rest() -> None:
    assert ends((0, 10, 0), (0, 30, 0)) == [2, 4]


def test_who_comes_later_shares_what_is_still_to_come() -> None:
    # The first has 20 bytes to go when the second comes; the second 10 more when the first ends.
    assert ends((0, 30, 0), (1, 30, 0)) == pytest.approx([5, 6])


def test_whoever_computes_longer_than_its_bytes_take_slows_nobody_for_longer() -> None:
    assert ends((0, 10, 9), (0, 10, 0), (3, 10, 0)) == pytest.approx([9, 2, 4])
