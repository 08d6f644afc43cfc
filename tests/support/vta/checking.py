"""Compiles layers, executes them as strictly as a board, and compares with NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from boards.vta import Config, simulate
from boards.vta.compiler.layers import Convolution, MaxPool
from boards.vta.compiler.network import LayerStep, Network, Shape, compile_network
from boards.vta.compiler.reference import compute_layer
from boards.vta.isa.config import ULTRA96
from tests.support.vta.references import tensor


def compile_chain(config: Config, layers: Sequence[Convolution | MaxPool]) -> Network:
    """Compile layers of which each reads the result of the one before."""
    steps = [LayerStep(layer, (number,)) for number, layer in enumerate(layers)]
    return compile_network(config, [layers[0].inputs], steps, [len(layers)])


def check_steps(
    inputs: Sequence[Shape], steps: Sequence[LayerStep], *, config: Config = ULTRA96, seed: int | None = None
) -> None:
    """Check the results of all steps, on random inputs."""
    tensors = [tensor(shape, number) for number, shape in enumerate(inputs)]
    outputs = range(len(inputs), len(inputs) + len(steps))
    network = compile_network(config, inputs, steps, outputs)
    result = simulate(network.on(*tensors), seed=seed)
    assert result.violations == ()
    assert result.memory is not None
    for step, output in zip(steps, network.results(result.memory), strict=True):
        tensors.append(compute_layer(step.layer, *(tensors[source] for source in step.sources)))
        np.testing.assert_array_equal(output, tensors[-1])
