"""The time that a device has to open again: the longest of three."""

import threading

import pytest

from pipeline.scheduler.stage_device import OPENINGS, Reopening, opening_limit


@pytest.mark.parametrize(
    ("stage_limit", "opened_s", "opening_s", "limit"),
    [
        # The stage's own limit, while a device opens in no time.
        (2.0, 0.0, 0.0, 2.0),
        (2.0, 2.0 / OPENINGS, 0.0, 2.0),
        # The first opening, many times over: a server has to be started again.
        (2.0, 3.0 / OPENINGS, 0.0, 3.0),
        (0.0, 0.5, 0.0, 0.5 * OPENINGS),
        (2.0, 0.5, 0.5 * OPENINGS - 1, 0.5 * OPENINGS),
        # Time that a kind of device always has.
        (2.0, 0.0, 30.0, 30.0),
        (2.0, 0.5, 0.5 * OPENINGS + 1, 0.5 * OPENINGS + 1),
        (0.0, 0.0, 0.0, 0.0),
    ],
)
def test_a_device_has_the_longest_of_three_limits(
    stage_limit: float, opened_s: float, opening_s: float, limit: float
) -> None:
    assert opening_limit(stage_limit, opened_s, opening_s) == pytest.approx(limit)


def test_a_device_may_take_longer_than_the_first_time() -> None:
    assert OPENINGS > 1


def test_an_opening_in_time_ends_the_clock() -> None:
    late = threading.Event()
    reopening = Reopening(60.0, late.set)
    reopening.begin()
    assert reopening.end()
    assert not reopening.end(), "it ends once"
    assert not late.is_set()


def test_a_late_opening_belongs_to_the_clock() -> None:
    late = threading.Event()
    reopening = Reopening(0.0, late.set)
    reopening.begin()
    assert late.wait(30)
    assert not reopening.end()
