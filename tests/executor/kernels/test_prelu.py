"""PReLU in every layout, against ONNX Runtime, and where its result is not a finite number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from tests.support.onnx_models import check_outputs, node, save, weights
from tests.support.relax_models import constant, kernels, module, run

CONV = node("Conv", "x w", "c")


@pytest.mark.parametrize("slopes", [(6, 1, 1), (1, 1, 1), (1,)])
def test_behind_a_convolution(slopes: tuple[int, ...], tmp_path: Path) -> None:
    nodes = [CONV, node("PRelu", "c s", "p"), node("Conv", "p w", "y")]
    constants = {"w": weights(6, 6, 3, 3), "s": weights(*slopes)}
    check_outputs(save(tmp_path / "model.onnx", nodes, {"x": (2, 6, 9, 10)}, ["y"], constants))


@pytest.mark.parametrize(("shape", "slopes"), [((2, 6), (6,)), ((2, 6, 5), (6, 1)), ((2, 6, 3, 4), (6, 1, 1))])
def test_alone(shape: tuple[int, ...], slopes: tuple[int, ...], tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", [node("PRelu", "x s", "y")], {"x": shape}, ["y"], {"s": weights(*slopes)})
    check_outputs(path)


def test_it_is_part_of_the_kernel_before_it() -> None:
    slopes, kernel = constant(weights(5)), constant(weights(5, 3, 3, 3))
    image = np.zeros((1, 3, 8, 8), np.float32)
    network = module(
        {"x": image}, lambda emit, x: relax.op.nn.prelu(emit(relax.op.nn.conv2d(x, kernel)), slopes, axis=1)
    )
    assert sorted(set(kernels(network).values())) in (["convolution", "general"], ["convolution"])
    assert sum("maximum" in name for name in kernels(network)) == 1


def test_numbers_that_are_not_finite() -> None:
    values = np.array([[np.nan, np.inf, -np.inf, -1.0, 0.0, 2.0]], np.float32)
    slopes = np.array([0.5, 0.5, 0.5, 0.25, 3.0, 9.0], np.float32)
    network = module({"x": values}, lambda _, x: relax.op.nn.prelu(x, constant(slopes), axis=1))
    np.testing.assert_array_equal(run(network, {"x": values}), [[np.nan, np.inf, -np.inf, -0.25, 0, 2]])
