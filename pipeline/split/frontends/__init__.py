"""Frontends: one file per model format, each ends in a Relax module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.errors import ModelError
from pipeline.split.frontends.imported import Imported

Shapes = Mapping[str, Sequence[int]]


def load(path: Path, shapes: Shapes | None = None) -> Imported:
    """Read the model at `path`, whatever its format.

    Raises
    ------
    ModelError
        If there is no such file, its format is unknown, or it uses what is not supported.
    """
    if not path.exists():
        raise ModelError(f"no model at {str(path)!r}; give the path of an ONNX file")
    if path.is_dir():
        raise ModelError(f"{str(path)!r} is a folder; give the path of an ONNX file")
    from pipeline.split.frontends import onnx

    return onnx.load(path, shapes or {})
