"""Programs of layers with random weights, compiled here, and the memory that they end with."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from boards.vta import Config, VtaProgram, simulate
from boards.vta.compiler.layers import Addition, MaxPool
from boards.vta.compiler.network import LayerStep, compile_network
from boards.vta.compiler.reference import compute_layer
from tests.support.vta.references import layer, tensor

SHAPE = (32, 6, 6)
LAYERS = {
    "convolution": [LayerStep(layer(SHAPE, 32, 3, padding=(1, 1, 1, 1)), (0,))],
    "residual": [LayerStep(layer(SHAPE, 32, 1), (0,)), LayerStep(Addition(SHAPE, shift=1, low=0), (0, 1))],
    "pool": [LayerStep(MaxPool(SHAPE, (3, 3), (2, 2), (1, 1, 1, 1)), (0,))],
}


@functools.cache
def layer_program(name: str) -> tuple[VtaProgram, npt.NDArray[np.uint8]]:
    """Return a sound program and its last memory, whose results are those of NumPy."""
    steps = LAYERS[name]
    network = compile_network(Config(), [SHAPE], steps, [len(steps)])
    program = network.on(tensor(SHAPE))
    result = simulate(program)
    assert result.violations == ()
    assert result.memory is not None
    tensors = [tensor(SHAPE)]
    for step in steps:
        tensors.append(compute_layer(step.layer, *(tensors[source] for source in step.sources)))
    np.testing.assert_array_equal(next(iter(network.results(result.memory))), tensors[-1])
    return program, result.memory
