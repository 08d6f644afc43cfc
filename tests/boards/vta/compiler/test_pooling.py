"""Compiled max pools compute what NumPy does, bit for bit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boards.vta.compiler.builder import ProgramBuilder
from boards.vta.compiler.layers import MaxPool
from boards.vta.compiler.network import LayerStep
from boards.vta.compiler.pooling import append_max_pool
from boards.vta.isa.config import ULTRA96
from pipeline.errors import BuildError
from tests.support.vta.checking import check_steps


@st.composite
def layers(draw: st.DrawFn) -> MaxPool:
    kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    inputs = draw(st.tuples(st.integers(1, 40), st.integers(kernel[0], 50), st.integers(kernel[1], 50)))
    pads = [st.integers(0, kernel[axis] - 1) for axis in (0, 1, 0, 1)]
    return MaxPool(inputs, kernel, draw(st.tuples(st.integers(1, 3), st.integers(1, 3))), draw(st.tuples(*pads)))


@settings(max_examples=60, deadline=None)
@given(layer=layers(), seed=st.none() | st.integers(0, 99))
def test_random_pools(layer: MaxPool, seed: int | None) -> None:
    check_steps([layer.inputs], [LayerStep(layer, (0,))], seed=seed)


def test_rows_that_do_not_fit_are_divided() -> None:
    layer = MaxPool((16, 3, 700), (3, 3), (2, 2), (1, 1, 1, 1))
    check_steps([layer.inputs], [LayerStep(layer, (0,))])


def test_impossible_pools_are_refused() -> None:
    with pytest.raises(BuildError, match=r"padding \(0, 2, 0, 0\) must be at least 0"):
        MaxPool((16, 8, 8), (2, 2), (2, 2), (0, 2, 0, 0))
    with pytest.raises(BuildError, match=r"leaves \(16, 0, 7\) results"):
        MaxPool((16, 1, 8), (2, 2), (1, 1))
    with pytest.raises(BuildError, match=r"a window of \(40, 40\) is too large"):
        append_max_pool(ProgramBuilder(ULTRA96), MaxPool((16, 50, 50), (40, 40), (1, 1)), 4096, 4096)
