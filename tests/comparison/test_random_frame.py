"""Random frames follow their seed and their specs."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.comparison.random_frame import PERTURBATION, perturb, random_frame
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


@pytest.mark.parametrize(
    ("dtype", "values", "largest_change", "most_changed"),
    [
        ("float32", [1.0, -1.0], PERTURBATION, 1.0),
        ("float64", [1e6, -1e6], 1e6 * PERTURBATION, 1.0),
        # A neighbour at one place of a hundred, and never beyond the dtype.
        ("uint8", [0, 255], 1, 0.02),
        ("int8", [-128, 5, 127], 1, 0.02),
        ("int64", [0, 1], 0, 0.0),
        ("bool", [False, True], 0, 0.0),
    ],
)
def test_a_perturbed_frame_is_near(dtype: str, values: list[float], largest_change: float, most_changed: float) -> None:
    array = np.resize(np.array(values, dtype), 6000)
    perturbed_array = perturb({"x": array})["x"]
    changes = np.abs(perturbed_array.astype(np.float64) - array.astype(np.float64))
    assert (perturbed_array.dtype, perturbed_array.shape) == (array.dtype, array.shape)
    assert changes.max() == pytest.approx(largest_change, rel=0.5)
    assert np.mean(changes > 0) <= most_changed
    np.testing.assert_array_equal(perturbed_array, perturb({"x": array})["x"], "each time the same")
