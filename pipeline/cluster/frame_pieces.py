"""Frame pieces: tensors small enough for Ray's calls, the fastest path.

Tensors above 100 kB go to the object store of the node, where a replica on the same node reads them without a copy.
But their reader has to be told of them, and another node's store has to be asked for them.  There and back, in
milliseconds, on two busy cores:

======= ======== ======= ======== =======
bytes   same node        another node
------- ---------------- ----------------
..      store    pieces  store    pieces
======= ======== ======= ======== =======
200 kB  4.5      1.6     9.9      1.8
600 kB  4.3      2.3     10.6     2.5
1 MB    4.5      3.5     11.8     3.7
2 MB    7.4      6.8     17.2     8.5
4 MB    7.3      14.3    21.8     17.6
======= ======== ======= ======== =======
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipeline.core.plan.plan import TensorSpec

PIECE = 90_000
"""Bytes of a piece. Ray's own limit is 100 kB, with what it adds."""

LARGEST_NEAR, LARGEST_FAR = 1 << 20, 4 << 20
"""Bytes of a frame's inputs, and of its outputs, on the same node and to another one."""


class CutTensors(NamedTuple):
    """Tensors in pieces."""

    heads: list[tuple[np.dtype, tuple[int, ...]]]
    pieces: list[bytes]
    """Bytes of all tensors, one after the other."""


def count_pieces(specs: Sequence[TensorSpec]) -> int:
    """Return into how many pieces such tensors are cut."""
    return sum(-(-spec.nbytes // PIECE) for spec in specs)


def cut_tensors(arrays: Sequence[np.ndarray]) -> CutTensors:
    """Return tensors in pieces."""
    pieces = []
    for array in arrays:
        # Not all dtypes are buffers; bytes always are.
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        pieces += [bytes(content[begin : begin + PIECE]) for begin in range(0, content.nbytes, PIECE)]
    return CutTensors([(array.dtype, array.shape) for array in arrays], pieces)


def join_tensors(heads: Sequence[tuple[np.dtype, tuple[int, ...]]], pieces: Sequence[bytes]) -> list[np.ndarray]:
    """Join received pieces to tensors in new memory."""
    arrays, remaining = [], iter(pieces)
    for dtype, shape in heads:
        array = np.empty(shape, dtype)
        content = array.reshape(-1).view(np.uint8)
        for begin in range(0, content.nbytes, PIECE):
            piece = next(remaining)
            content[begin : begin + len(piece)] = np.frombuffer(piece, np.uint8)
        arrays.append(array)
    return arrays
