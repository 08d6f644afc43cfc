"""Arrays beside a page without access, so that a kernel that leaves its tensor ends the process."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from pipeline.system.memory import ALIGNMENT

FILLING = 0xA5
_PAGE = mmap.PAGESIZE
_PROTECT = ctypes.CDLL(None, use_errno=True).mprotect
_PROTECT.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class FencedArray:
    """Memory of one array, between two pages without access.

    Parameters
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    behind : bool
        Whether the array begins right behind the first of these pages.  Otherwise it ends before the second, by less
        than the alignment that kernels may rely on.

    Attributes
    ----------
    array : numpy.ndarray
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, *, behind: bool) -> None:
        count = int(np.prod(shape)) * dtype.itemsize
        room = max(_PAGE, count + -count % _PAGE)
        self._mapping = mmap.mmap(-1, room + 2 * _PAGE)
        content = np.frombuffer(self._mapping, np.uint8)
        for start in (content.ctypes.data, content.ctypes.data + _PAGE + room):
            if _PROTECT(start, _PAGE, mmap.PROT_NONE if hasattr(mmap, "PROT_NONE") else 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        self._room = content[_PAGE : _PAGE + room]
        self._start = 0 if behind else (room - count) // ALIGNMENT * ALIGNMENT
        place = self._room[self._start : self._start + count]
        self.array: np.ndarray = np.ndarray(shape, dtype, buffer=place.data)
        self._before = np.empty_like(self._room)

    def fill(self, values: np.ndarray) -> None:
        """Set the array's elements, and what lies around it."""
        self._room[:] = FILLING
        np.copyto(self.array, values)
        self._before[:] = self._room

    @property
    def is_unchanged(self) -> bool:
        """Whether nobody has written to the array, or around it."""
        return bool(np.array_equal(self._room, self._before))
