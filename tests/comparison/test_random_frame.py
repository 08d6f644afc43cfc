"""Random frames follow their seed and their specs."""

from __future__ import annotations

import numpy as np

from pipeline.comparison.random_frame import random_frame
from pipeline.core.plan.plan import TensorSpec

SPECS = [
    TensorSpec("f", (3, 4)),
    TensorSpec("h", (2,), "float16"),
    TensorSpec("i", (50,), "int64"),
    TensorSpec("b", (9,), "bool"),
]


def test_arrays_have_the_shapes_and_dtypes_of_their_specs() -> None:
    frame = random_frame(SPECS, 0)
    assert {name: (array.shape, str(array.dtype)) for name, array in frame.items()} == {
        spec.name: (spec.shape, spec.dtype) for spec in SPECS
    }
    assert set(frame["i"].tolist()) == {0, 1}


def test_equal_seeds_give_equal_frames() -> None:
    first, repeated, different = random_frame(SPECS, 0), random_frame(SPECS, 0), random_frame(SPECS, 1)
    for spec in SPECS:
        np.testing.assert_array_equal(first[spec.name], repeated[spec.name])
    assert not np.array_equal(first["f"], different["f"])
