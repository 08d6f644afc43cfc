"""Frontends: one file or folder per model format, each ends in a Relax module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import ModelError
from pipeline.split.frontends.formats import Format, recognise, supported
from pipeline.split.frontends.imported import Imported

Shapes = Mapping[str, Sequence[Any]]
"""Extents of inputs, or names for them where a reader takes such."""


def load(model: Any, shapes: Shapes | None = None, params: Mapping[str, Any] | str | Path | None = None) -> Imported:
    """Read a model; its content says what format it is of.

    Parameters
    ----------
    model : str, Path, torch.export.ExportedProgram, tvm.IRModule, or tvm.relax.Function
    shapes : mapping of str to sequence of int, optional
        Extents for inputs that the model leaves open.
    params : mapping, str or Path, optional
        Parameters that are not in the model's file, which only Relay programs and Relax modules have.

    Raises
    ------
    ModelError
        If there is no such file, its format is unknown, or it uses what is not supported.
    """
    found = kind(model)
    if found is Format.RELAX:
        return _relax(model, shapes or {}, params)
    if params is not None and found is not Format.RELAY:
        name = repr(str(model)) if isinstance(model, str | Path) else "the model"
        raise ModelError(f"{name} is {found.value} and holds its parameters itself; leave out the other ones")
    if not isinstance(model, str | Path):
        from pipeline.split.frontends import torch

        return torch.from_program(model, shapes or {})
    path = Path(model)
    if found is Format.RELAY:
        from pipeline.split.frontends import relay

        return relay.load(path, shapes, params)
    return _holding_parameters(path, found, shapes or {})


def _relax(model: Any, shapes: Shapes, params: Mapping[str, Any] | str | Path | None) -> Imported:
    from pipeline.split.frontends import relax

    if isinstance(model, str | Path):
        return relax.load(Path(model), shapes, params)
    return relax.from_module(model, shapes, params)


def _holding_parameters(path: Path, found: Format, shapes: Shapes) -> Imported:
    if found is Format.TORCH:
        from pipeline.split.frontends.torch import load as load_exported

        return load_exported(path, shapes)
    if found is Format.TFLITE:
        from pipeline.split.frontends import tflite

        return tflite.load(path, shapes)
    from pipeline.split.frontends import onnx

    return onnx.load(path, shapes)


def kind(model: Any) -> Format:
    """Return the format of a file, or of a model in memory.

    Raises
    ------
    ModelError
        If there is no such file, or it is of no format that can be read.
    """
    if not isinstance(model, str | Path):
        return _of_object(model)
    path = Path(model)
    if not path.exists():
        raise ModelError(f"no model at {str(path)!r}; give the path of {supported()}")
    if path.is_dir():
        raise ModelError(f"{str(path)!r} is {_folder(path)}; give the path of {supported()}")
    return recognise(path)


def _folder(path: Path) -> str:
    if (path / "manifest.json").exists():
        return "a bundle, which is built already; run it, or load it by pipeline.load"
    if (path / "saved_model.pb").exists():
        return "a SavedModel of TensorFlow; convert it to TFLite or ONNX"
    return "a folder"


def _of_object(model: Any) -> Format:
    names = {f"{each.__module__}.{each.__qualname__}" for each in type(model).__mro__}
    if "torch.export.exported_program.ExportedProgram" in names:
        return Format.TORCH
    if "tvm.ir.module.IRModule" in names or "tvm.relax.expr.Function" in names:
        return Format.RELAX
    if any(name in names for name in ("torch.nn.modules.module.Module", "torch.jit._script.ScriptModule")):
        raise ModelError(
            f"{type(model).__name__} is a PyTorch module; export it first: "
            "torch.export.export(module.eval(), (example,))"
        )
    raise ModelError(
        f"a {type(model).__name__} is no model; give a torch.export.ExportedProgram, a tvm.IRModule, or a file's path"
    )
