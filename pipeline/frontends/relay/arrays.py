"""Arrays in TVM's ``.params`` files and base64."""

from __future__ import annotations

import math
import struct
from mmap import mmap

import numpy as np

# kTVMNDArrayMagic of TVM's ndarray.h; what follows is reserved, device, axes, dtype, shape, size and data.
_MAGIC = 0xDD5E40F096B4A13F
# DLPack's DLDataTypeCode; others, such as bfloat16 (4), NumPy has no dtype for.
_KINDS = {0: "int", 1: "uint", 2: "float"}
# NumPy 1 has no more axes than these.
_MOST_AXES = 32


class ArrayReader:
    """Reader of a buffer, piece by checked piece."""

    def __init__(self, data: bytes | mmap) -> None:
        self._data = memoryview(data)
        self._offset = 0

    def take(self, count: int) -> memoryview:
        """Return the next `count` bytes; `ValueError` if there are fewer."""
        remainder = len(self._data) - self._offset
        # Lengths come from the file, so that a negative or a huge one is damage and no reason to allocate.
        if not 0 <= count <= remainder:
            raise ValueError(f"{count} bytes should follow, but there are {remainder}")
        self._offset += count
        return self._data[self._offset - count : self._offset]

    def unpack(self, form: str) -> tuple[int, ...]:
        """Return the next numbers."""
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def array(self) -> np.ndarray:
        """Return the next array, without a copy.

        Raises `ValueError` if it is damaged, or of a dtype that NumPy does not have.
        """
        magic, _, _, _, rank, code, bits, lanes = self.unpack("<QQiiiBBH")
        if magic != _MAGIC:
            raise ValueError("it does not begin like an array")
        # Before the shape is read, for which a damaged rank would ask for gigabytes.
        if not 0 <= rank <= _MOST_AXES:
            raise ValueError(f"{rank} axes")
        shape = self.unpack(f"<{rank}q")
        (size,) = self.unpack("<q")
        dtype = _dtype(code, bits, lanes)
        # Two negative extents have a plausible product.
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != size:
            raise ValueError(f"{size} bytes do not make {dtype} of the shape {shape}")
        # A view: parameters of a mapped file are paged in only when they are used.
        return np.frombuffer(self.take(size), dtype).reshape(shape)


def _dtype(code: int, bits: int, lanes: int) -> np.dtype:
    # TVM writes truth values as unsigned numbers of one bit, each in a byte of its own.
    if (code, bits) == (1, 1) and lanes == 1:
        return np.dtype(bool)
    if code not in _KINDS or bits not in (8, 16, 32, 64) or lanes != 1:
        raise ValueError(f"dtype code {code} with {bits} bits is not supported")
    return np.dtype(f"{_KINDS[code]}{bits}")


def decode(data: bytes) -> np.ndarray:
    """Return the array in a buffer; `ValueError` if it is damaged."""
    return ArrayReader(data).array()
