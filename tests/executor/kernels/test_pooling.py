"""Pools that no rule writes a kernel for: TVM's own run them, on whatever layout their image has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import relax

from tests.support.relax_models import module, run

BYTES = np.random.default_rng(0).integers(-128, 128, (1, 6, 8, 10)).astype(np.int8)
FLOATS = BYTES.astype(np.float32)
BLOCKS = FLOATS.reshape(1, 6, 4, 2, 5, 2)
SECOND = [FLOATS[:, :, down : down + 6, across : across + 8] for down in (0, 2) for across in (0, 2)]

POOLS: dict[str, tuple[Callable[[Any], Any], np.ndarray, np.ndarray]] = {
    "largest of signed bytes": (lambda x: relax.op.nn.max_pool2d(x, (2, 2), (2, 2)), BYTES, BLOCKS.max((3, 5))),
    "mean of every second": (lambda x: relax.op.nn.avg_pool2d(x, (2, 2), dilation=(2, 2)), FLOATS, np.mean(SECOND, 0)),
    "mean of a grid": (lambda x: relax.op.nn.adaptive_avg_pool2d(x, (4, 5)), FLOATS, BLOCKS.mean((3, 5))),
}


@pytest.mark.parametrize("name", POOLS)
def test_result_is_right(name: str) -> None:
    pool, image, expected = POOLS[name]
    stage = module({"x": image}, lambda emit, x: emit(pool(x)))
    np.testing.assert_allclose(run(stage, {"x": image}), expected, rtol=1e-5)
