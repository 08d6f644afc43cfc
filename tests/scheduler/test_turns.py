"""Devices that workers borrow in turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from pipeline.scheduler.turns import DeviceTurns, Loan, Turns
from tests.scheduler.conftest import LIMIT, wait_until

FRAMES = (5, 3, 5, 4)
"""Whose workers ask in this order."""


def has_length(turns: Turns, count: int) -> bool:
    return len(turns) == count


def test_the_oldest_frame_has_the_device_first() -> None:
    turns, order, waiting = Turns(), list[int](), list[threading.Thread]()
    first = turns.take(9)

    def borrow(number: int) -> None:
        ticket = turns.take(FRAMES[number])
        order.append(number)
        turns.give_back(ticket)

    for number in range(4):
        waiting.append(threading.Thread(target=borrow, args=(number,)))
        waiting[-1].start()
        wait_until(partial(has_length, turns, number + 2))
    assert not order
    turns.give_back(first)
    for thread in waiting:
        thread.join(LIMIT)
    # Of the same frame, who asks first: branches may meet at a device.
    assert order == [1, 3, 0, 2]


def test_a_device_that_was_given_back_already_is_not_given_back_again() -> None:
    """A worker that was given up comes back late, when its device is another's."""
    turns = Turns()
    late = turns.take(0)
    turns.give_back(late)
    second = turns.take(0)
    turns.give_back(late)
    assert len(turns) == 1
    third = threading.Thread(target=turns.take, args=(0,))
    third.start()
    wait_until(partial(has_length, turns, 2))
    turns.give_back(late)
    assert third.is_alive()
    turns.give_back(second)
    third.join(LIMIT)
    assert not third.is_alive()


def run_at_once(wait: Callable[[], None]) -> None:
    wait()


def test_a_loan_is_given_back_once() -> None:
    turns = DeviceTurns().of("npu")
    first, second = (Loan(turns, 0, run_at_once) for _ in range(2))
    with first:
        first.release()
        with second:
            # Its worker comes back late.
            first.release()
            assert len(turns) == 1
    assert not len(turns)
    assert first.asked <= first.begin <= second.begin <= second.end <= first.end


def test_a_device_of_the_worker_is_there_at_once() -> None:
    loan = Loan(None, 0, lambda _: pytest.fail("nothing to wait for"))
    with loan:
        assert loan.begin
    assert loan.end >= loan.begin
