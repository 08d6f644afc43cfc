"""Parameters that stay in the model's file until they are used, so that they are in memory once at most."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tvm.ir import GenericConst

from pipeline.split.lines import ALIGNMENT, array, constant
from pipeline.tvm_access import tvm_ffi


class MappedFile:
    """A file whose arrays share the system's pages of it.

    Parameters
    ----------
    path : Path
    stays : bool
        Whether aligned arrays may remain there once the model is cleaned up.
    """

    def __init__(self, path: Path, *, stays: bool) -> None:
        with path.open("rb") as stream:
            # A copy on write, which nobody writes: TVM takes no read-only arrays.
            self._pages = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
        whole = np.frombuffer(self._pages, np.uint8)
        self._start, self._end = whole.ctypes.data, whole.ctypes.data + whole.size
        self._stays = stays

    def tensor(self, offset: int, dtype: Any, shape: Sequence[int]) -> Any:
        """Return the array at an offset as TVM's tensor, without reading it."""
        found = np.ndarray(tuple(shape), dtype, buffer=self._pages, offset=offset)
        return tvm_ffi.from_dlpack(found, require_alignment=0)

    def is_to_move(self, values: np.ndarray) -> bool:
        """Whether an array lies here and cannot stay."""
        place = values.ctypes.data
        return self._start <= place < self._end and not (self._stays and place % ALIGNMENT == 0)

    def release(self) -> None:
        """Let the system take back the pages that were read; they are read again if they are needed."""
        if hasattr(self._pages, "madvise"):
            self._pages.madvise(mmap.MADV_DONTNEED)


class Parameters:
    """The files in which a model has its parameters."""

    def __init__(self) -> None:
        self.files: dict[Path, MappedFile] = {}

    def file(self, path: Path, *, stays: bool) -> MappedFile:
        """Return the file, mapped once."""
        if path not in self.files:
            self.files[path] = MappedFile(path, stays=stays)
        return self.files[path]

    def release(self) -> None:
        """Let the system take back all pages of the files."""
        for each in self.files.values():
            each.release()

    def settled(self, expression: Any) -> Any:
        """Return a constant in memory of its own, if it lies in a file where it cannot stay."""
        if not self.files or not isinstance(expression, GenericConst):
            return expression
        values = array(expression)
        if values is None:
            return expression
        home = next((each for each in self.files.values() if each.is_to_move(values)), None)
        if home is None:
            return expression
        moved = constant(values)
        home.release()
        return moved
