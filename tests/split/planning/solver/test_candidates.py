"""Among plans that are equally fast, the smaller one: fewer stages, then fewer units of devices."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.split.planning.solver.candidates import Candidate


def size(uses: Sequence[Sequence[int]]) -> float:
    """Return the size of stages that use so many units of each resource."""
    solution: Any = SimpleNamespace(stages=[SimpleNamespace(choice=SimpleNamespace(use=use)) for use in uses])
    prediction: Any = None
    return Candidate(solution, prediction).size


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ([(1,)], [(1,), (1,)]),
        ([(1,), (1,)], [(1,), (2,)]),
        ([(1, 0), (0, 1)], [(1, 1), (1, 1)]),
        ([(0,)], [(1,)]),
        # A stage weighs more than any number of units that a board may have.
        ([(64,), (64,)], [(1,), (1,), (1,)]),
    ],
)
def test_stages_count_before_units(smaller: Sequence[Sequence[int]], larger: Sequence[Sequence[int]]) -> None:
    assert size(smaller) < size(larger)


def test_units_count_wherever_they_are() -> None:
    assert size([(2,), (1,)]) == size([(1,), (2,)]) == size([(1, 1), (1, 0)])
