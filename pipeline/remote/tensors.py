"""Tensors on the wire: raw bytes, received in place for kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.remote.messages import TensorHead
from pipeline.remote.wire import Wire
from pipeline.system.memory import contents, empty


def heads(arrays: Sequence[np.ndarray]) -> tuple[TensorHead, ...]:
    """Return the dtypes and shapes of arrays."""
    return tuple(TensorHead(str(array.dtype), array.shape) for array in arrays)


def contiguous(array: np.ndarray) -> np.ndarray:
    """Return the array, or a contiguous copy."""
    # The reshape is for scalars, of which NumPy makes arrays of one axis here.
    return np.ascontiguousarray(array).reshape(array.shape)


def receive(wire: Wire[Any], tensors: Sequence[TensorHead]) -> list[np.ndarray]:
    """Receive a message's tensors; callers have checked their sizes."""
    # Aligned, as kernels demand of tensors that they use in place.
    arrays = [empty(tensor.shape, tensor.dtype) for tensor in tensors]
    for array in arrays:
        wire.fill(contents(array))
    return arrays
