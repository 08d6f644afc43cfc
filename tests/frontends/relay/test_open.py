"""Relay programs with extents that vary: one build for any size, equal to builds for each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.errors import ModelError
from pipeline.split.symbolic_model import OpenModel
from tests.support.relay_programs import HEADER, random

NETWORK = (
    HEADER
    + """def @main(%x: Tensor[(?, 3, 16, 16), float32], %w: Tensor[(8, 3, 3, 3), float32], %b: Tensor[(8), float32],
          %d: Tensor[(10, 128), float32], %m: Tensor[(8), float32], %v: Tensor[(8), float32]) {
  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]);
  %1 = nn.bias_add(%0, %b);
  %2 = nn.batch_norm(%1, %v, %b, %m, %v);
  %3 = nn.relu(%2.0);
  %4 = nn.max_pool2d(%3, pool_size=[2, 2], strides=[2, 2]);
  %5 = nn.avg_pool2d(%4, pool_size=[2, 2], strides=[2, 2]);
  %6 = (%5, %5);
  %7 = concatenate(%6, axis=1);
  %8 = split(%7, indices_or_sections=2, axis=1);
  %9 = add(%8.0, %8.1);
  %10 = nn.batch_flatten(%9);
  %11 = nn.dense(%10, %d);
  %12 = reshape(%11, newshape=[-1, 2, 5]);
  %13 = reshape(%12, newshape=[0, -3]);
  %14 = mean(%4, axis=[2, 3]);
  (nn.softmax(%13), %14, transpose(%12, axes=[0, 2, 1]))
}
"""
)


@pytest.fixture
def model(tmp_path: Path) -> OpenModel:
    path = tmp_path / "m.relay"
    path.write_text(NETWORK)
    shapes = {"w": (8, 3, 3, 3), "b": (8,), "d": (10, 128), "m": (8,)}
    constants = {name: random(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    output = pipeline.read(path, {"x": ["N", 3, 16, 16]}, constants | {"v": np.abs(random(8, seed=9)) + 0.5})
    assert isinstance(output, OpenModel)
    return output


def test_a_symbolic_build_takes_batches_that_it_was_not_built_for(model: OpenModel) -> None:
    """Frame by frame, a batch has to give what the fixed model gives for each of its rows."""
    plan = pipeline.plan(model.at(N=2), stages=2)
    single = pipeline.build(model.at(N=1), pipeline.plan(model.at(N=1), stages=1))
    with (
        pipeline.load(pipeline.build(model, plan, other_sizes="symbolic")) as running,
        pipeline.load(single) as unsplit,
    ):
        for rows in (1, 2, 5):
            batch = random(rows, 3, 16, 16, seed=rows)
            results = running.submit(batch).result()
            for row in range(rows):
                for name, reference in unsplit.submit(batch[row : row + 1]).result().items():
                    np.testing.assert_allclose(results[name][row : row + 1], reference, rtol=1e-4, atol=1e-5)


def test_spatial_extents_may_vary_too(tmp_path: Path) -> None:
    path = tmp_path / "m.relay"
    path.write_text(
        f"{HEADER}def @main(%x: Tensor[(1, 4, ?, ?), float32]) "
        "{ %0 = nn.max_pool2d(%x, pool_size=[2, 2], strides=[2, 2]); %1 = exp(%0); nn.global_avg_pool2d(%1) }"
    )
    model = pipeline.read(path, {"x": [1, 4, "H", "W"]})
    assert isinstance(model, OpenModel)
    bundle = pipeline.build(model, pipeline.plan(model.at(H=8, W=8)), other_sizes="symbolic")
    x = random(1, 4, 12, 20)
    with pipeline.load(bundle) as running:
        reference = np.exp(x.reshape(1, 4, 6, 2, 10, 2).max((3, 5))).mean((2, 3), keepdims=True)
        np.testing.assert_allclose(running.submit(x).result(), reference, rtol=1e-5)


def test_what_is_fixed_in_the_program_cannot_vary(tmp_path: Path) -> None:
    path = tmp_path / "m.relay"
    path.write_text(f"{HEADER}def @main(%x: Tensor[(?, 4), float32]) {{ reshape(%x, newshape=[2, 2, 4]) }}")
    model = pipeline.read(path, {"x": ["N", 4]})
    assert isinstance(model, OpenModel)
    assert model.at(N=4).outputs[0].shape == (2, 2, 4)
    with pytest.raises(ModelError, match=r"reshape: the shape \(N, 4\) does not become \[2, 2, 4\]"):
        pipeline.build(model, pipeline.plan(model.at(N=4)), other_sizes="symbolic")
