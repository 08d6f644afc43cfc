"""A bias as a product of int8, which takes GEMM one cycle where adding it takes ALU two."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boards.vta.compiler.packing import pack_constants
from boards.vta.config import Config

_LARGEST = 127


def multipliers(config: Config) -> npt.NDArray[np.int8]:
    """Return the input element, ``int8[block]``, that the weights of `as_weights` are for."""
    values = np.full(config.block, _LARGEST, np.int8)
    values[-1] = 1
    return values


def as_weights(config: Config, bias: npt.NDArray[np.int32]) -> npt.NDArray[np.int8] | None:
    """Return ``int8[blocks, block, block]`` whose products with `multipliers` are the bias, or None."""
    wanted = pack_constants(config, bias).astype(np.int64)
    rest = (wanted + _LARGEST // 2) % _LARGEST - _LARGEST // 2
    times = (wanted - rest) // _LARGEST
    weights = np.zeros((*wanted.shape, config.block), np.int64)
    weights[..., -1] = rest
    for column in range(config.block - 1):
        weights[..., column] = np.clip(times, -128, _LARGEST)
        times = times - weights[..., column]
    return None if times.any() else weights.astype(np.int8)
