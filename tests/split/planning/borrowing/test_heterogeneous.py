"""Shortest paths over a chain with a device for each item, against all paths."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, product

import numpy as np
import pytest

from pipeline.split.planning.borrowing.heterogeneous import (
    OWN,
    Step,
    StepCosts,
    chain_totals,
    path_totals,
    shortest_path,
    span_paths,
    waiting_seconds,
)


def random_costs(seed: int) -> StepCosts:
    """Return up to five items on two or three devices, some of which cannot run everything, and a link."""
    generator = np.random.default_rng(seed)
    items, devices = int(generator.integers(1, 6)), int(generator.integers(2, 4))
    seconds = generator.exponential(1, (devices, items))
    seconds[1:][generator.random((devices - 1, items)) < 0.2] = np.inf
    moves = generator.exponential(0.2, (devices, devices, items + 1))
    moves[np.arange(devices), np.arange(devices)] = 0.0
    # Each borrowed device is a resource, and the last one a link that all moves take.
    uses = np.vstack([np.eye(devices)[1:], np.zeros((1, devices))])
    move_uses = np.zeros((devices, *moves.shape))
    move_uses[-1] = moves
    return StepCosts(seconds, np.array([0.0, *generator.uniform(0, 0.1, devices - 1)]), moves, uses, move_uses)


def all_paths(costs: StepCosts, begin: int, end: int) -> Iterator[list[Step]]:
    for devices in product(range(len(costs.start_s)), repeat=end - begin):
        steps, first = list[Step](), begin
        for device, run in groupby(devices):
            last = first + len(list(run))
            steps.append(Step(device, first, last))
            first = last
        yield steps


@pytest.mark.parametrize("seed", range(20))
def test_paths_of_all_spans_are_the_best_of_all_paths_for_each_price(seed: int) -> None:
    costs = random_costs(seed)
    prices = np.vstack([np.zeros(costs.resources), np.random.default_rng(seed).exponential(1, (2, costs.resources))])
    paths = span_paths(costs, prices)
    for row, begin, end in product(range(3), range(costs.items), range(1, costs.items + 1)):
        if begin >= end:
            continue
        weights = np.array([1.0, *prices[row]])
        best = min(weights @ path_totals(costs, steps) for steps in all_paths(costs, begin, end))
        totals = np.array([paths.seconds[row, end, begin], *paths.uses[row, :, end, begin]])
        assert weights @ totals == pytest.approx(best)
        assert path_totals(costs, paths.steps(row, begin, end)) == pytest.approx(totals)
    whole = chain_totals(costs, prices)
    assert whole[:, 0] == pytest.approx(paths.seconds[:, costs.items, 0])
    assert whole[:, 1:] == pytest.approx(paths.uses[:, :, costs.items, 0])


def test_a_path_changes_its_device_where_that_is_worth_it_and_comes_home() -> None:
    seconds = np.array([[1.0, 9.0, 1.0, 9.0], [np.inf, 2.0, 5.0, 2.0]])
    moves = np.zeros((2, 2, 5))
    moves[0, 1] = moves[1, 0] = 0.5
    costs = StepCosts(seconds, np.array([0.0, 0.25]), moves, np.array([[0.0, 1.0]]), np.zeros((1, 2, 2, 5)))
    steps = shortest_path(costs, [0.0], 0, 4)
    assert steps == [Step(OWN, 0, 1), Step(1, 1, 2), Step(OWN, 2, 3), Step(1, 3, 4)]
    # Two steps of 2 s, each with its begin; and four moves of half a second.
    assert path_totals(costs, steps) == pytest.approx([1 + 2.25 + 1 + 2.25 + 4 * 0.5, 4.5])
    # At a price of 4, the third item is better left where it is: 5 more seconds there would cost 20.
    assert shortest_path(costs, [4.0], 0, 4) == [Step(OWN, 0, 4)]


def test_a_span_without_a_path_takes_for_ever() -> None:
    seconds = np.array([[1.0, np.inf], [1.0, np.inf]])
    costs = StepCosts(seconds, np.zeros(2), np.zeros((2, 2, 3)), np.array([[0.0, 1.0]]), np.zeros((1, 2, 2, 3)))
    paths = span_paths(costs, np.zeros((1, 1)))
    assert paths.seconds[0, 1, 0] == 1
    assert paths.seconds[0, 2, 0] == np.inf
    assert chain_totals(costs, np.zeros((1, 1)))[0, 0] == np.inf
    with pytest.raises(ValueError, match="no path"):
        shortest_path(costs, [0.0], 0, 2)


def test_one_worker_never_waits_and_many_wait_until_what_they_share_is_busy() -> None:
    seconds, use = np.array([10.0]), np.array([4.0])
    assert waiting_seconds(seconds, [use], 1) == pytest.approx([0.0])
    # One of two finds the other one in line for 4 of 10 seconds.
    assert waiting_seconds(seconds, [use], 2) == pytest.approx([4 * 4 / 10])
    intervals = [(10 + waiting_seconds(seconds, [use], count)[0]) / count for count in range(1, 30)]
    assert intervals == sorted(intervals, reverse=True)
    assert intervals[-1] == pytest.approx(4, rel=0.01)


def test_prices_that_differ_a_little_let_some_of_many_equal_items_borrow() -> None:
    items = 16
    seconds = np.vstack([np.full(items, 4.0), np.full(items, 1.0)])
    costs = StepCosts(
        seconds, np.zeros(2), np.zeros((2, 2, items + 1)), np.array([[0.0, 1.0]]), np.zeros((1, 2, 2, items + 1))
    )
    assert sorted(costs.ranks) == pytest.approx(np.arange(-1, 1, 2 / items))
    # Borrowing saves 3 seconds: at a price below it is worth it for all, above for none.
    used = [
        chain_totals(costs, np.array([[price, spread]]))[0, 1] for price, spread in ((2.9, 0), (3.1, 0), (3.1, 0.25))
    ]
    assert used[:2] == [items, 0]
    assert 0 < used[2] < items
