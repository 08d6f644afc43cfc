"""Trial frames: random inputs of several kinds."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.comparison.random_frame import candidates, is_tame, random_frame
from pipeline.core.plan.plan import TensorSpec

SPECS = [TensorSpec("x", (2, 3), "float32"), TensorSpec("rate", (), "int64"), TensorSpec("pixels", (4,), "uint8")]


def test_the_first_is_the_usual_random_frame() -> None:
    first = next(candidates(SPECS, 3))
    assert first.description == ""
    for name, array in random_frame(SPECS, 3).items():
        np.testing.assert_array_equal(first.arrays[name], array)


def test_each_differs_in_what_it_says() -> None:
    frames = {frame.description: frame.arrays for frame in candidates(SPECS, 0)}
    assert len(frames) == 10
    mixed = frames["floats between 0 and 1 and integers 16000"]
    assert mixed["rate"] == 16_000
    assert 0 <= mixed["x"].min() <= mixed["x"].max() < 1
    assert (mixed["pixels"] == random_frame(SPECS, 0)["pixels"]).all()
    for arrays in frames.values():
        assert [(array.shape, str(array.dtype)) for array in arrays.values()] == [
            (spec.shape, spec.dtype) for spec in SPECS
        ]


@pytest.mark.parametrize(("specs", "count"), [(SPECS[:1], 2), (SPECS[1:2], 5), (SPECS[2:], 1), ([], 1)])
def test_kinds_of_which_there_are_no_values_are_left_out(specs: list[TensorSpec], count: int) -> None:
    assert len(list(candidates(specs, 0))) == count


@pytest.mark.parametrize(
    ("value", "tame"), [(0.0, True), (-1e17, True), (-2e33, False), (np.nan, False), (np.inf, False)]
)
def test_outputs_that_overflow_are_not_tame(value: float, tame: bool) -> None:
    assert is_tame({"y": np.array([1.0, value], np.float32), "count": np.array([3])}) is tame
