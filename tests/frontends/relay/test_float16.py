"""Programs of float16, from the text to the running pipeline: as exact as one rounding of the right result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from tests.support.relay_programs import HEADER, signature


def uniform(*shape: int) -> np.ndarray:
    """Numbers from 0 to 1: their sum in float16 stands still at 2,048."""
    return np.random.default_rng([0, *shape]).random(shape).astype(np.float16)


def convolve_points(x: np.ndarray, _: np.ndarray, weight: np.ndarray) -> Any:
    return np.einsum("nchw,oc->nohw", x, weight[:, :, 0, 0])


IMAGE = uniform(1, 8, 112, 112)
POINTS = (uniform(1, 8192, 2, 2), np.zeros((1, 2, 2, 2), np.float16), uniform(2, 8192, 1, 1))
DEFORMABLE = "nn.deformable_conv2d(%a, %b, %c, kernel_size=[1, 1], channels=2"
PROGRAMS: dict[str, tuple[str, tuple[np.ndarray, ...], Callable[..., Any]]] = {
    "dense": ("nn.dense(%a, %b)", (uniform(2, 4096), uniform(16, 4096)), lambda x, w: x @ w.T),
    "dense of its dtype": (
        'nn.dense(%a, %b, out_dtype="float16")',
        (uniform(2, 4096), uniform(16, 4096)),
        lambda x, w: x @ w.T,
    ),
    "mean": ("mean(%a, axis=[2, 3])", (IMAGE,), lambda x: x.mean((2, 3))),
    "global_avg_pool2d": ("nn.global_avg_pool2d(%a)", (IMAGE,), lambda x: x.mean((2, 3), keepdims=True)),
    # Its kernel comes from TVM, which sums in the dtype that it is called with.
    "deformable_conv2d": (f"{DEFORMABLE})", POINTS, convolve_points),
    "deformable_conv2d of its dtype": (f'{DEFORMABLE}, out_dtype="float16")', POINTS, convolve_points),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_sums_are_rounded_once(tmp_path: Path, kind: str) -> None:
    call, operands, exact = PROGRAMS[kind]
    inputs = dict(zip("abc", operands, strict=False))
    path = tmp_path / "m.relay"
    path.write_text(f"{HEADER}def @main({signature(inputs)}) {{ {call} }}")
    graph = pipeline.read(path)
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1))
    with pipeline.load(bundle) as running:
        output = np.asarray(running.submit(inputs).result(60))
    assert output.dtype == np.float16
    reference = exact(*(operand.astype(np.float64) for operand in operands))
    # Half a unit in the last of 11 bits, and a little for the sum in float32.
    np.testing.assert_allclose(output.astype(np.float64), reference, rtol=6e-4)
