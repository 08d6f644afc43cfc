"""Compiled additions compute what NumPy does, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boards.vta.compiler.layers import Addition
from boards.vta.compiler.network import LayerStep
from pipeline.errors import BuildError
from tests.support.vta.checking import check_steps


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 70), st.integers(1, 30), st.integers(1, 30)),
    shifts=st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 15)),
    low=st.sampled_from([-128, 0]),
    even=st.booleans(),
    seed=st.none() | st.integers(0, 99),
)
def test_random_additions(
    shape: tuple[int, int, int], shifts: tuple[int, int, int], low: int, even: bool, seed: int | None
) -> None:
    check_steps([shape, shape], [LayerStep(Addition(shape, *shifts, low=low, even=even), (0, 1))], seed=seed)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left_shift": 7}, "left_shift is 7; VTA can do 0 to 6 here"),
        ({"right_shift": -1}, "right_shift is -1"),
        ({"shift": 16}, "shift is 16; VTA can do 0 to 15 here"),
        ({"high": 128}, "clipped to -128 .. 128"),
    ],
)
def test_impossible_additions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BuildError, match=message):
        Addition((16, 4, 4), **changes)
