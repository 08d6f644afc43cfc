"""ConstantFile: large constants of a cleaned model, out of memory until read.

The file is temporary and has no name, unlike the model's own files, which may be written anew while the graph is used.
"""

from __future__ import annotations

import gc
import mmap
import tempfile
from collections.abc import Iterable
from typing import IO, Any

import numpy as np
from tvm.ir import GenericConst

from pipeline.model.passes.bindings import constant
from pipeline.system.memory import LARGE, LARGE_PAGE, align_up, map_file, pieces, release

_Key = tuple[int, str, tuple[int, ...]]


class ConstantFile:
    """Large constants of a model in a temporary file.

    The constants stay in memory if there is no room for the file.
    """

    def __init__(self, expressions: Iterable[Any]) -> None:
        self._pages: mmap.mmap | None = None
        self._replacements: dict[_Key, Any] = {}
        arrays = {_key(array): array for array in map(_large, expressions) if array is not None}
        if arrays:
            # Without a name: the system removes it with its last map, however the process ends.
            with tempfile.TemporaryFile(buffering=LARGE_PAGE) as stream:
                self._move(stream, arrays)

    def _move(self, stream: IO[bytes], arrays: dict[_Key, np.ndarray]) -> None:
        try:
            stream.writelines(pieces(arrays.values()))
            stream.flush()
        except OSError:  # Then in memory, and in any case not in the model's own files.
            self._replacements = {key: constant(values) for key, values in arrays.items()}
            return
        self._pages, start = map_file(stream.fileno()), 0
        for key, values in arrays.items():
            mapped_values = np.ndarray(values.shape, values.dtype, buffer=self._pages, offset=start)
            self._replacements[key] = constant(mapped_values, share=True)
            start = align_up(start + values.nbytes)

    def replacement(self, expression: Any) -> Any:
        """Return a constant at its new position; others unchanged."""
        values = _large(expression)
        return expression if values is None else self._replacements.get(_key(values), expression)

    def release(self) -> None:
        """Free read pages of the file, and cycles of Python objects."""
        if self._pages is not None:
            # TVM's importers leave cycles, which hold arrays until the collector runs.
            gc.collect()
            release(self._pages)


def _large(expression: Any) -> np.ndarray | None:
    """Return the array of a constant large enough for the file."""
    if not isinstance(expression, GenericConst):
        return None
    try:
        values = np.from_dlpack(expression.value)
    except (BufferError, RuntimeError, TypeError):  # NumPy does not know the dtype.
        return None
    return values if values.nbytes >= LARGE else None


def _key(values: np.ndarray) -> _Key:
    # By address: one array that several operators read is one in the file. With shape and dtype, as arrays without
    # copies may share their first byte.
    return values.ctypes.data, str(values.dtype), values.shape
