"""Scales fit to the extents of their axis."""

import pytest

from pipeline.core.plan.plan import TensorSpec
from pipeline.core.plan.plan_checks import check_quantization
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import PlanError


@pytest.mark.parametrize(
    ("tensor", "scales", "axis", "fits"),
    [
        # One scale for all, and one for each place along an axis of (2, 3).
        ("y", 1, 0, True),
        ("y", 1, 7, True),
        ("y", 2, 0, True),
        ("y", 3, 1, True),
        ("y", 3, 0, False),
        ("y", 2, 1, False),
        ("y", 2, 2, False),
        ("y", 4, 1, False),
        # A stage of Python has made something else of it.
        ("z", 5, 0, True),
    ],
)
def test_scales_along_an_axis_are_as_many_as_its_places(tensor: str, scales: int, axis: int, fits: bool) -> None:
    quantization = [Quantization(tensor, (0.5,) * scales, (0,) * scales, axis)]
    outputs = [TensorSpec("x", (7,)), TensorSpec("y", (2, 3))]
    if fits:
        check_quantization(outputs, quantization)
    else:
        with pytest.raises(PlanError, match=rf"tensor 'y' has {scales} scales along axis {axis} of \[2, 3\]"):
            check_quantization(outputs, quantization)
