"""Results as arrays: all in one .npz file, or one file for each frame."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import InputError
from pipeline.files import replacing
from pipeline.io.frame import Delivered
from pipeline.io.sink import Sink
from pipeline.plans import TensorSpec


class Stacked(Sink):
    """Stacks all results into one .npz file, written when the last one is there.

    Parameters
    ----------
    path : Path
    outputs : sequence of TensorSpec
        The model's.

    Raises
    ------
    OSError
        If nothing can be written there.
    """

    def __init__(self, path: Path, outputs: Sequence[TensorSpec]) -> None:
        self._names = [spec.name for spec in outputs]
        self._results: list[Delivered] = []
        with contextlib.ExitStack() as stack:
            # Opened now, so that a place where nothing can be written is found before the frames run.
            self._stream = stack.enter_context(replacing(path))
            self._stack = stack.pop_all()

    def add(self, delivered: Delivered) -> None:
        """Keep one result."""
        self._results.append(delivered)

    def finish(self) -> None:
        """Write the file."""
        with self._stack:
            np.savez(self._stream, **{name: self._together(name) for name in self._names})

    def abandon(self) -> None:
        """Leave what was there before."""
        _end_by_error(self._stack)

    def _together(self, name: str) -> Any:
        try:
            return np.stack([each.outputs[name] for each in self._results])
        except ValueError:
            what = "the results have several shapes" if self._results else "there are no results"
            raise InputError(f"{what}, which one .npz cannot stack; give a folder for one per frame") from None


def _end_by_error(stack: contextlib.ExitStack) -> None:
    error = sys.exc_info()[1] or InputError("given up")
    with contextlib.suppress(type(error)):
        stack.__exit__(type(error), error, None)


class Folder(Sink):
    """Writes each result to a .npz file of its own.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._used: set[str] = set()

    def add(self, delivered: Delivered) -> None:
        """Write one result."""
        with replacing(self._folder / f"{self._unused(delivered.frame.name)}.npz") as stream:
            np.savez(stream, **delivered.outputs)

    def _unused(self, name: str) -> str:
        """Return a name of its own: inputs from several folders may be called the same."""
        numbered = (f"{name}-{number}" for number in count(2))
        own = next(each for each in chain([name], numbered) if each not in self._used)
        self._used.add(own)
        return own
