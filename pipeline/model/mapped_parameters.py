"""Parameters mapped from the model's files, in memory at most once."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.system.memory import map_file, release
from pipeline.tvm.access import tvm_ffi


class Parameters:
    """Files of a model's parameters."""

    def __init__(self) -> None:
        self._files: dict[Path, mmap.mmap] = {}

    def tensor_in(self, path: Path, offset: int, dtype: Any, shape: Sequence[int]) -> Any:
        """Return an array in a file as TVM's tensor, unread.

        The array need not be aligned.
        """
        # One mapping per file: a model has hundreds of tensors in one, and Linux allows a process 65530 mappings by
        # default.
        if path not in self._files:
            with path.open("rb") as stream:
                self._files[path] = map_file(stream.fileno())
        values = np.ndarray(tuple(shape), dtype, buffer=self._files[path], offset=offset)
        return tvm_ffi.from_dlpack(values, require_alignment=0)

    def release(self) -> None:
        """Let the system take back the read pages until needed again."""
        for pages in self._files.values():
            release(pages)
