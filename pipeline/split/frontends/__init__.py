"""Frontends: one file or folder per model format, each ends in a Relax module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import ModelError
from pipeline.split.frontends.formats import Format, recognise, supported
from pipeline.split.frontends.imported import Imported

Shapes = Mapping[str, Sequence[int]]


def load(path: Path, shapes: Shapes | None = None, params: Mapping[str, Any] | str | Path | None = None) -> Imported:
    """Read the model at `path`; its content says what format it is of.

    Parameters
    ----------
    path : Path
    shapes : mapping of str to sequence of int, optional
        Extents for inputs that the model leaves open.
    params : mapping, str or Path, optional
        Parameters that are not in the model's file, which only Relay programs have.

    Raises
    ------
    ModelError
        If there is no such file, its format is unknown, or it uses what is not supported.
    """
    if not path.exists():
        raise ModelError(f"no model at {str(path)!r}; give the path of {supported()}")
    if path.is_dir():
        raise ModelError(f"{str(path)!r} is a folder; give the path of {supported()}")
    found = recognise(path)
    if params is not None and found is not Format.RELAY:
        raise ModelError(f"{str(path)!r} is {found.value} and holds its parameters itself; leave out the other ones")
    if found is Format.RELAY:
        from pipeline.split.frontends import relay

        return relay.load(path, shapes, params)
    if found is Format.RELAX:
        from pipeline.split.frontends import relax_file

        return relax_file.load(path, shapes or {})
    from pipeline.split.frontends import onnx

    return onnx.load(path, shapes or {})
