"""Bytes that kernels bound by memory read and write, beside the fewest that these tensors need."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tools.arm.networks import CompiledNetwork

# Operations for each byte from which a kernel is not bound by memory; a core has some ten times as many operations as
# bytes that arrive from memory.
_BOUND = 16


class MemoryUse(NamedTuple):
    """Traffic of one kernel in a frame.

    Attributes
    ----------
    function : str
    elements : int
        Of its results.
    total_bytes : int
        Each operand and result once.
    fewest_bytes : int
        The same, if each element of an image has as many bytes as the network's numbers need.
    """

    function: str
    elements: int
    total_bytes: int
    fewest_bytes: int


def memory_uses(network: CompiledNetwork, number_bytes: int) -> Iterator[MemoryUse]:
    """Yield the kernels that are bound by memory; `number_bytes` are one for int8, four for float32."""
    for name, calls in network.calls.items():
        # What TVM's library does by itself has no loops here.
        if name not in network.functions:
            continue
        tensors = [
            (_elements(param), np.dtype(str(param.dtype)).itemsize, _is_image(param))
            for param in network.functions[name].params
        ]
        total = sum(count * size for count, size, _ in tensors)
        if network.operations.get(name, 0) / total >= _BOUND:
            continue
        fewest = sum(count * (min(size, number_bytes) if is_image else size) for count, size, is_image in tensors)
        yield MemoryUse(name, calls * tensors[-1][0], calls * total, calls * fewest)


def _is_image(param: Any) -> bool:
    # Weights and scales are as they are; those that are spread over an image have one pixel.
    return len(param.shape) == 4 and math.prod(int(extent) for extent in param.shape[:3]) > 1


def _elements(param: Any) -> int:
    return math.prod(int(extent) for extent in param.shape)
