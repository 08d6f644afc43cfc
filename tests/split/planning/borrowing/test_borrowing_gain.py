"""Borrowing several times is asked for only where it beats one visit, wherever the chain can run."""

from collections.abc import Sequence

import numpy as np
import pytest

from pipeline.split.planning.borrowing.borrowing_gain import is_useful
from pipeline.split.planning.borrowing.heterogeneous import StepCosts

NEVER = np.inf
# Own cores, and a device that is good at every second item.
HOME, LENT = [1.0, 9.0, 1.0, 9.0], [NEVER, 2.0, 5.0, 2.0]


def costs(home: Sequence[float], lent: Sequence[float], move_s: float = 0.5, start_s: float = 0.25) -> StepCosts:
    moves = np.zeros((2, 2, len(home) + 1))
    moves[0, 1] = moves[1, 0] = move_s
    uses, move_uses = np.array([[0.0, 1.0]]), np.zeros((1, *moves.shape))
    return StepCosts(np.array([home, lent]), np.array([0.0, start_s]), moves, uses, move_uses)


@pytest.mark.parametrize("behind", [0, 1, 2], ids="behind {}".format)
@pytest.mark.parametrize("in_front", [0, 1, 3], ids="in front {}".format)
@pytest.mark.parametrize(
    ("home", "lent", "move_s", "is_worth_it"),
    [
        # Twice: 1 + 2.25 + 1 + 2.25 and four moves of 0.5 s, or 8.5 s; once, for the last three: 11.25 s.
        (HOME, LENT, 0.5, True),
        # Twice 10.5 s, once 12.25 s; and a tenth more is what it has to bring.
        (HOME, LENT, 1.0, True),
        (HOME, LENT, 1.4, False),
        # One visit for all is the best.
        (HOME, [1.0, 2.0, 1.0, 2.0], 0.5, False),
        # Nothing is worth a move.
        ([1.0] * 4, [1.0] * 4, 0.5, False),
    ],
)
def test_what_is_worth_several_visits(  # noqa: PLR0917
    home: Sequence[float], lent: Sequence[float], move_s: float, is_worth_it: bool, in_front: int, behind: int
) -> None:
    """None of these devices runs what lies in front and behind."""
    ends = [NEVER] * in_front, [NEVER] * behind
    assert is_useful(costs([*ends[0], *home, *ends[1]], [*ends[0], *lent, *ends[1]], move_s)) == is_worth_it
