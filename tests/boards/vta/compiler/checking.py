"""Compiles layers, executes them as strictly as a board, and compares with NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boards.vta import Config, simulate
from boards.vta.compiler.network import Shape, Step, compiled
from boards.vta.config import ULTRA96
from boards.vta.reference import any_of
from tests.boards.vta.compiler.references import tensor


def check_steps(
    inputs: Sequence[Shape], steps: Sequence[Step], *, config: Config = ULTRA96, seed: int | None = None
) -> None:
    """Check the results of all steps, on random inputs."""
    tensors = [tensor(shape, number) for number, shape in enumerate(inputs)]
    outputs = range(len(inputs), len(inputs) + len(steps))
    network = compiled(config, inputs, steps, outputs)
    result = simulate(network.on(*tensors), seed=seed)
    assert result.violations == ()
    assert result.memory is not None
    for step, found in zip(steps, network.results(result.memory), strict=True):
        tensors.append(any_of(step.layer, *(tensors[source] for source in step.sources)))
        np.testing.assert_array_equal(found, tensors[-1])
