"""Memory: arrays for compiled kernels, and parameters on large pages.

A stage reads all of its parameters for every frame.  On pages of 4 kB the processor looks up a page for every 64 cache
lines; on those of 2 MB that is gone, which shows where memory is the limit, as in dense layers.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import mmap
import os
import sys
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import DTypeLike

ALIGNMENT = 64
"""Alignment of tensors in bytes that compiled kernels may rely on; NumPy itself promises 16."""

LARGE = 1 << 16
"""Size in bytes from which on an array is worth a place in a file."""

LARGE_PAGE = 2 << 20
"""Bytes of a large page on x86-64, and on 64-bit Arm where a small one has 4 kB."""

_MAP_FIXED = 0x10
"""Linux's flag of `mmap` for a map at an address, in the place of what is there."""


def align_up(offset: int, unit: int = ALIGNMENT) -> int:
    """Round `offset` up to a multiple of `unit`."""
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
    """Return an aligned contiguous copy, in reused memory if possible."""
    # Not `copy_aligned`, whose pages are always fresh ones: the allocator may hand out those of a frame that has ended.
    # And not by `empty`, for a little less time: a small network's frames pay for each call.
    buffer = np.empty(array.nbytes + ALIGNMENT - 1, np.uint8)
    copy: np.ndarray = np.ndarray(array.shape, array.dtype, buffer, -_address(buffer) % ALIGNMENT)
    copy[...] = array
    return copy


def is_aligned(array: np.ndarray) -> bool:
    """Check if an array is not empty, and aligned for kernels."""
    return bool(array.size) and array.ctypes.data % ALIGNMENT == 0


def is_usable(array: np.ndarray) -> bool:
    """Check if TVM can use an array in place (never read-only)."""
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
    """Return the bytes of an array, uncopied if contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def copy_aligned(array: np.ndarray) -> np.ndarray:
    """Return an aligned copy.

    A large one goes back to the system with the array, not to the allocator for later.
    """
    copy: np.ndarray = np.ndarray(array.shape, array.dtype, buffer=room(array.nbytes).data)
    np.copyto(copy, array)
    return copy


def room(nbytes: int) -> np.ndarray:
    """Return aligned bytes, many of them on large pages."""
    return empty((nbytes,), np.uint8) if nbytes < LARGE_PAGE else _large_pages(nbytes)


def move_together(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Move arrays into one piece of memory, and empty the dict.

    They move one by one, so that arrays nobody else holds are not in memory twice. Arrays no larger than a page
    together are returned unchanged.
    """
    size = sum(align_up(array.nbytes) for array in arrays.values())
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
    """Return zeros that begin on a large page."""
    # One page more, since the system promises that a map begins with a small page only.
    pages = mmap.mmap(-1, size + LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _prefer_large(pages)
    buffer = np.frombuffer(pages, np.uint8)
    start = -buffer.__array_interface__["data"][0] % LARGE_PAGE
    return buffer[start : start + size]


def pieces(arrays: Iterable[np.ndarray]) -> Iterator[memoryview]:
    """Yield the parts of a file of arrays: gaps and bytes.

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
    """Map a non-empty file, on large pages if possible.

    Changes never reach the file.  The map is not read-only, because TVM takes no such arrays.  It keeps no descriptor,
    so that it may be made in a thread with its own ones, as in `quietly`, and end in another thread.
    """
    if sys.version_info >= (3, 13):
        pages = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY, trackfd=False)
    elif sys.platform.startswith("linux"):
        pages = _map_without_descriptor(descriptor)
    else:
        pages = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    _prefer_large(pages)
    return pages


def _map_without_descriptor(descriptor: int) -> mmap.mmap:
    """Map a file in the place of zeros, whose map has no file.

    Python would duplicate the descriptor, and close its number when the map ends.
    """
    size = os.fstat(descriptor).st_size
    if not size:
        raise ValueError("cannot mmap an empty file")
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    library = ctypes.CDLL(None, use_errno=True)
    # Where a C library has both, `mmap` takes an offset of 32 bits on 32-bit systems.
    call = library.mmap64 if hasattr(library, "mmap64") else library.mmap
    call.restype = ctypes.c_void_p
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    flags = mmap.MAP_PRIVATE | _MAP_FIXED
    if call(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0) != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return pages


def release(pages: mmap.mmap) -> None:
    """Let the system take back a file's read pages until needed."""
    with contextlib.suppress(AttributeError):
        pages.madvise(mmap.MADV_DONTNEED)


def _prefer_large(pages: mmap.mmap) -> None:
    # Not every system has them.
    with contextlib.suppress(AttributeError, OSError):
        pages.madvise(mmap.MADV_HUGEPAGE)
