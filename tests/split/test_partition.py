"""The solver is exact: no division that brute force finds is faster."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipeline.split import partition as module
from pipeline.split.partition import Partition, partition

Costs = NDArray[np.float64]


def cost(compute: Costs, crossing: Costs, ends: tuple[int, ...]) -> list[float]:
    """Seconds of each stage, by the words of the documentation."""
    stages, items = len(ends), compute.shape[-1]
    compute = np.broadcast_to(compute, (stages, items))
    crossing = np.broadcast_to(crossing, (max(stages - 1, 0), items - 1))
    edges = [0, *ends]
    return [
        float(compute[stage, begin:end].sum())
        + (float(crossing[stage - 1, begin - 1]) if stage else 0.0)
        + (float(crossing[stage, end - 1]) if stage < stages - 1 else 0.0)
        for stage, (begin, end) in enumerate(itertools.pairwise(edges))
    ]


def brute_force(compute: Costs, crossing: Costs, stages: int) -> float:
    items = compute.shape[-1]
    return min(
        max(cost(compute, crossing, (*inner, items))) for inner in itertools.combinations(range(1, items), stages - 1)
    )


def check(compute: Costs, crossing: Costs, stages: int) -> None:
    solution = partition(compute, crossing, stages)
    assert len(solution.ends) == stages
    assert list(solution.ends) == sorted(set(solution.ends))
    assert solution.ends[0] >= 1
    assert solution.ends[-1] == compute.shape[-1]
    expected = cost(compute, crossing, solution.ends)
    # Sums of parts are differences of sums from the start, exact to the digits of the whole.
    exact = 1e-12 * float(compute.sum() + crossing.sum())
    np.testing.assert_allclose(solution.seconds, expected, rtol=0, atol=exact)
    assert solution.slowest == pytest.approx(brute_force(compute, crossing, stages), rel=0, abs=exact)


seconds = st.one_of(st.just(0.0), st.integers(0, 5).map(float), st.floats(0, 1e3, allow_subnormal=False))


@st.composite
def instances(draw: Any) -> tuple[Costs, Costs, int]:
    items = draw(st.integers(1, 8))
    stages = draw(st.integers(1, items))
    rows = draw(st.booleans())
    shapes = ((stages, items), (stages - 1, items - 1)) if rows else ((items,), (items - 1,))
    compute, crossing = (
        np.array(draw(st.lists(seconds, min_size=size, max_size=size)), np.float64).reshape(shape)
        for shape in shapes
        for size in [int(np.prod(shape))]
    )
    return compute, crossing, stages


@settings(max_examples=400, deadline=None, derandomize=True)
@given(instances())
def test_equals_brute_force(instance: tuple[Costs, Costs, int]) -> None:
    check(*instance)


@pytest.mark.parametrize("seed", range(40))
def test_equals_brute_force_where_crossing_costs_more_than_computing(seed: int) -> None:
    generator = np.random.default_rng(seed)
    items = int(generator.integers(2, 11))
    stages = int(generator.integers(1, items + 1))
    check(generator.uniform(0, 1, items), generator.uniform(0, 100, items - 1), stages)


@pytest.mark.parametrize("seed", range(40))
def test_equals_brute_force_on_unequal_devices(seed: int) -> None:
    generator = np.random.default_rng(seed)
    items = int(generator.integers(2, 11))
    stages = int(generator.integers(1, items + 1))
    speeds = generator.uniform(0.1, 10, (stages, 1))
    compute = generator.exponential(1, items) * speeds + (generator.random((stages, items)) < 0.1) * 50
    check(compute, generator.exponential(1, (stages - 1, items - 1)), stages)


def test_one_stage_takes_all_and_crosses_nothing() -> None:
    assert partition([1, 2, 3], [7, 7], 1) == Partition((3,), (6.0,))


def test_as_many_stages_as_items_leaves_no_choice() -> None:
    assert partition([1, 2, 3], [10, 20], 3) == Partition((1, 2, 3), (11.0, 32.0, 23.0))


def test_costs_of_zero_end_at_once() -> None:
    assert partition(np.zeros(6), np.zeros(5), 3).slowest == 0
    assert partition([0, 0, 5, 0], [0, 0, 0], 4).slowest == 5


def test_a_cheap_crossing_is_worth_imbalance() -> None:
    assert partition([1, 1, 1, 1], [0, 5, 0], 2).slowest == 3


def test_a_stage_is_never_empty_even_if_that_were_faster() -> None:
    assert partition([1, 1], [100], 2) == Partition((1, 2), (101.0, 101.0))


def test_the_fast_device_gets_more() -> None:
    assert partition([[1] * 6, [5] * 6], [[0] * 5], 2).ends == (5, 6)


@pytest.mark.parametrize(
    ("compute", "crossing", "stages", "message"),
    [
        ([1, 2], [0], 0, "0 stages of 2 items"),
        ([1, 2], [0], 3, "3 stages of 2 items"),
        ([], [], 1, "1 stages of 0 items"),
        ([1, -1], [0], 1, "not negative"),
        ([1, np.inf], [0], 1, "finite"),
        ([1, np.nan], [0], 1, "finite"),
        ([1, 1], [-1], 2, "not negative"),
        ([1, 1, 1], [1], 3, "crossing has the shape"),
        ([[1, 1], [1, 1]], [1], 1, "compute has the shape"),
    ],
)
def test_wrong_costs_are_refused(compute: Any, crossing: Any, stages: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        partition(compute, np.array(crossing, float), stages)


@pytest.mark.parametrize("stages", [2, 7, 32])
def test_growth_is_close_to_linear(stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial costs O(stages x items); their number follows from the digits of a float, not from the length.

    Counted, not timed; the seconds are in bench/partition.py.
    """
    counted: list[int] = []
    solve = module._Chain.solve

    def counting(self: Any, limit: float) -> Partition | None:
        counted[-1] += 1
        return solve(self, limit)

    monkeypatch.setattr(module._Chain, "solve", counting)
    for items in (100, 1_000, 10_000):
        generator = np.random.default_rng(items)
        counted.append(0)
        solution = partition(generator.exponential(1, items), generator.exponential(1, items - 1), stages)
        assert len(solution.ends) == stages
    assert max(counted) <= 64


def test_a_long_chain_of_equal_items_is_divided_evenly() -> None:
    solution = partition(np.ones(10_000), np.zeros(9_999), 16)
    assert solution.slowest == 625
