"""Memory: arrays where compiled kernels can use them, and parameters on pages that cost little to find.

A stage reads all of its parameters for every frame.  On pages of 4 kB the processor looks up a page for every 64 cache
lines; on those of 2 MB that is gone, which shows where memory is the limit, as in dense layers.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import mmap
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import DTypeLike

ALIGNMENT = 64
"""Bytes that compiled kernels may rely on where a tensor starts; NumPy itself promises 16."""

LARGE = 1 << 16
"""Bytes from which on an array is worth a place in a file."""

LARGE_PAGE = 2 << 20
"""Bytes of a large page on x86-64, and on 64-bit Arm where a small one has 4 kB."""


def align_up(offset: int, unit: int = ALIGNMENT) -> int:
    """Return the first multiple of `unit` that is not below `offset`."""
    return offset + -offset % unit


def empty(shape: Sequence[int], dtype: DTypeLike) -> np.ndarray:
    """Return a contiguous array of any contents, aligned for kernels."""
    kind = np.dtype(dtype)
    # NumPy cannot be asked for an alignment: take as many bytes more as the start may have to move.
    buffer = np.empty(kind.itemsize * math.prod(shape) + ALIGNMENT - 1, np.uint8)
    start = -_address(buffer) % ALIGNMENT
    array: np.ndarray = np.ndarray(tuple(shape), kind, buffer=buffer, offset=start)
    return array


def snapshot(array: np.ndarray) -> np.ndarray:
    """Return a contiguous copy that is aligned for kernels, in memory that may have been another frame's."""
    # Not `copy_aligned`, whose pages are always fresh ones: the allocator may hand out those of a frame that has ended.
    copy = empty(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


def is_aligned(array: np.ndarray) -> bool:
    """Check that an array has bytes, and begins where kernels may rely on it."""
    return bool(array.size) and array.ctypes.data % ALIGNMENT == 0


def is_usable(array: np.ndarray) -> bool:
    """Check that TVM can use an array in place; it takes none that are read-only."""
    flags = array.flags
    if not (flags.c_contiguous and flags.writeable and array.size):
        return False
    try:
        return _address(array) % ALIGNMENT == 0
    except ValueError:  # of a dtype that Python's buffers do not know, such as bfloat16
        return is_aligned(array)


def _address(array: np.ndarray) -> int:
    # A third of what `array.ctypes.data` takes, which a small network pays several times with each frame.
    return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]


def contents(array: np.ndarray) -> memoryview:
    """Return the bytes of an array, those that it lies in if they are contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def copy_aligned(array: np.ndarray) -> np.ndarray:
    """Return an aligned copy; a large one goes back to the system with the array, not to the allocator for later."""
    copy: np.ndarray = np.ndarray(array.shape, array.dtype, buffer=room(array.nbytes).data)
    np.copyto(copy, array)
    return copy


def room(nbytes: int) -> np.ndarray:
    """Return so many bytes, aligned for kernels, on large pages if they are many and the system has them."""
    return empty((nbytes,), np.uint8) if nbytes < LARGE_PAGE else _large_pages(nbytes)


def move_together(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Move arrays into one piece of memory, on large pages where the system has them; the dict is emptied.

    One after the other, so that arrays that nobody else holds are not in memory twice.  Arrays that are no larger than
    a page together are returned as they are.
    """
    size = sum(align_up(each.nbytes) for each in arrays.values())
    if size < LARGE_PAGE:
        return dict(arrays)
    gc.collect()  # TVM's own cycles may hold them too.
    pages = _large_pages(size)
    arrays_in_pages, end = {}, 0
    for name in list(arrays):
        array = arrays.pop(name)
        arrays_in_pages[name] = np.ndarray(array.shape, array.dtype, buffer=pages, offset=end)
        arrays_in_pages[name][...] = array
        end = align_up(end + array.nbytes)
    return arrays_in_pages


def _large_pages(size: int) -> np.ndarray:
    """Return so many bytes of zeros that begin with a large page."""
    # One page more, since the system promises that a map begins with a small page only.
    pages = mmap.mmap(-1, size + LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _prefer_large(pages)
    buffer = np.frombuffer(pages, np.uint8)
    start = -buffer.__array_interface__["data"][0] % LARGE_PAGE
    return buffer[start : start + size]


def pieces(arrays: Iterable[np.ndarray]) -> Iterator[memoryview]:
    """Yield the parts of a file of these arrays: gaps, so that each is aligned, and bytes, not copied if possible.

    Written through a buffer of a large page, they leave in whole pages, which stay whole in the system's memory, and
    are mapped as such.
    """
    end = 0
    for array in arrays:
        # Relative to the file's start, which is mapped at the start of a page.
        yield memoryview(bytes(-end % ALIGNMENT))
        content = contents(array)
        for start in range(0, len(content), LARGE_PAGE):
            yield content[start : start + LARGE_PAGE]
        end = align_up(end) + len(content)


def map_file(descriptor: int) -> mmap.mmap:
    """Map a file that is not empty: pages are read when they are used, large ones where the system can.

    Changes never reach the file.  It is not read-only, because TVM takes no such arrays.
    """
    pages = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    _prefer_large(pages)
    return pages


def release(pages: mmap.mmap) -> None:
    """Let the system take back the pages of a file that were read; they are read again if they are needed."""
    with contextlib.suppress(AttributeError):
        pages.madvise(mmap.MADV_DONTNEED)


def _prefer_large(pages: mmap.mmap) -> None:
    # Not every system has them.
    with contextlib.suppress(AttributeError, OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)
