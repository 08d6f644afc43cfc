"""Random layers and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.compiler.layers import Convolution


def layer(inputs: tuple[int, int, int], outputs: int, kernel: int = 3, seed: int = 0, **options: Any) -> Convolution:
    """Return a layer with random weights and bias."""
    random = np.random.default_rng(seed)
    weights = random.integers(-128, 128, (outputs, inputs[0], kernel, kernel)).astype(np.int8)
    bias = random.integers(-100_000, 100_000, outputs).astype(np.int32)
    shift = np.full(outputs, 9, np.int8)
    return Convolution(inputs, **{"weights": weights, "bias": bias, "shift": shift, **options})


def tensor(shape: tuple[int, ...], seed: int = 0) -> npt.NDArray[np.int8]:
    """Return random numbers."""
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)
