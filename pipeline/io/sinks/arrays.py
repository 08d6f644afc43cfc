"""Results as arrays: one .npz file in all, or per frame."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError
from pipeline.io.sinks.base import Sink, SinkKind, SinkOptions, UniqueNames
from pipeline.io.source_frame import StreamFrame
from pipeline.io.uri import Uri, has_suffix
from pipeline.system import leftovers
from pipeline.system.files import open_replacement


class StackedArrays(Sink):
    """Stacks all results of one shape into one .npz file at the end.

    Raises `OSError` if nothing can be written there.
    """

    reads_results = False

    def __init__(self, path: Path, outputs: Sequence[TensorSpec]) -> None:
        self._names = [spec.name for spec in outputs]
        self._results: list[StreamFrame] = []
        self._shapes: list[tuple[int, ...]] = []
        with contextlib.ExitStack() as stack:
            # Opened now, so that a place where nothing can be written is found before the frames run.
            self._stream = stack.enter_context(open_replacement(path))
            # From here on the `with` block of the sink ends it; until here, an error has.
            self._stack = stack.pop_all()

    def add(self, result: StreamFrame) -> None:
        """Keep one result; `InputError` if its shapes are not those of the first one."""
        shapes = [np.shape(result.outputs[name]) for name in self._names]
        if self._results and shapes != self._shapes:
            raise InputError(
                f"{result.frame.name}: the results have several shapes, {self._shapes} and {shapes}, which one .npz "
                "cannot stack; give a folder for one per frame"
            )
        self._shapes = shapes
        self._results.append(result)

    def finish(self) -> None:
        """Write the file.

        Raises `InputError` if there is nothing to write; what was there before stays.
        """
        with self._stack:
            if not self._results:
                raise InputError("there are no results for one .npz; give a folder for one per frame")
            np.savez(self._stream, **{name: self._stack_output(name) for name in self._names})

    def finish_early(self) -> None:
        """Write the file, or keep an earlier one without results."""
        if self._results:
            self.finish()
            return
        # Ends in the error that there is nothing to write, by which `open_replacement` removes its temporary file.
        with contextlib.suppress(InputError):
            self.finish()

    def _stack_output(self, name: str) -> Any:
        return np.stack([result.outputs[name] for result in self._results])


class Folder(Sink):
    """Writes every result to a separate .npz file in a folder, made if it is not there."""

    reads_results = False

    def __init__(self, folder: Path) -> None:
        # Not its parents: a typing mistake in the path should not make folders.
        folder.mkdir(exist_ok=True)
        self._folder = folder
        # Once for all files, and not with each: the folder may have thousands.
        with contextlib.suppress(OSError):
            leftovers.remove_files(folder, r".+\.npz")
        self._unique_name = UniqueNames()

    def add(self, result: StreamFrame) -> None:
        """Write one result."""
        with open_replacement(self._folder / f"{self._unique_name(result.frame.name)}.npz", cleans=False) as stream:
            np.savez(stream, **result.outputs)


def _open_stacked(uri: Uri, options: SinkOptions) -> StackedArrays:
    return StackedArrays(uri.path, options.outputs)


def _open_folder(uri: Uri, _: SinkOptions) -> Folder:
    if uri.path.exists() and not uri.path.is_dir():
        raise InputError(f"{uri.text!r} is a file; give a .npz file, or a folder for one .npz per frame")
    return Folder(uri.path)


def _is_folder(path: Path) -> bool:
    return path.is_dir() or not path.suffix


KINDS = (
    SinkKind("npz", _open_stacked, "a .npz file", has_suffix(".npz")),
    # Also for a folder that is not there yet, which a name without a suffix stands for.
    SinkKind("folder", _open_folder, "a folder for one .npz per frame", _is_folder),
)
