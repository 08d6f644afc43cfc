"""Frontends: one folder per model format, all ending in Relax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.core.shapes import Shapes
from pipeline.errors import ModelError
from pipeline.frontends.cards import find_card
from pipeline.frontends.formats import FORMATS, Format, recognise, supported_formats
from pipeline.model.imported_model import ImportedModel


def load(
    model: Any,
    shapes: Shapes | None = None,
    params: Mapping[str, Any] | str | Path | None = None,
    *,
    fallback: bool = True,
) -> ImportedModel:
    """Read a model; its content reveals its format.

    `shapes` are extents for inputs that the model leaves open, or names for them where a reader takes such, or one
    extent by the model's name for it; `params` are parameters outside of the file, which only Relay programs and Relax
    modules have. With `fallback`, operators that cannot be imported are left to the model's own runtime, where the
    format has one that is installed. Raises `ModelError` if there is no such file, its format is unknown, or it uses
    what is not supported.
    """
    entry = kind(model)
    is_file = isinstance(model, str | Path)
    # An ONNX or TFLite file with other parameters would be another model under the same name.
    if params is not None and not entry.external_parameters:
        name = repr(str(model)) if is_file else "the model"
        raise ModelError(f"{name} is {entry} and holds its parameters itself; leave out the other ones")
    # Only now: each frontend needs an optional library, and reading one format must not ask for all of them.
    package = entry.module()
    options: dict[str, Any] = {"params": params} if entry.external_parameters else {}
    if entry.library is not None:
        options["fallback"] = fallback
    imported_model: ImportedModel = (
        package.load(Path(model), shapes or {}, **options)
        if is_file
        else package.from_object(model, shapes or {}, **options)
    )
    card, notes = find_card(model, imported_model.metadata, imported_model.input_dtypes)
    original = None if entry.library is None else model
    return replace(imported_model, original=original, card=card, notes=(*imported_model.notes, *notes))


def kind(model: Any) -> Format:
    """Return the format of a file or a model in memory.

    Raises `ModelError` if there is no such file, or it is of no format that can be read.
    """
    if not isinstance(model, str | Path):
        return _object_format(model)
    path = Path(model)
    if not path.exists():
        raise ModelError(f"no model at {str(path)!r}; give the path of {supported_formats()}")
    # A bundle and a SavedModel are folders that people take for models; these two get words of their own.
    if path.is_dir():
        try:
            description = _folder(path)
        except OSError as error:
            raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
        raise ModelError(f"{str(path)!r} is {description}; give the path of {supported_formats()}")
    return recognise(path)


def _folder(path: Path) -> str:
    if (path / "manifest.sha256").exists():
        return "a bundle, which is built already; run it, or load it by pipeline.load"
    if (path / "saved_model.pb").exists():
        return "a SavedModel of TensorFlow; convert it to TFLite or ONNX"
    if (path / "Manifest.json").exists() and (path / "Data").is_dir():
        return "a package of Core ML; convert the model to ONNX or TFLite"
    models = sorted(file.name for file in path.iterdir() if file.suffix in {".onnx", ".tflite", ".pt2"})
    if models and (path / "manifest.json").exists():
        return "a folder of stages, each of which is a model"
    return f"a folder with models; give one of them, such as {str(path / models[0])!r}" if models else "a folder"


def _object_format(model: Any) -> Format:
    # By name, so that no library is imported for a model of another.
    names = {f"{base.__module__}.{base.__qualname__}" for base in type(model).__mro__}
    for entry in FORMATS:
        if names.intersection(entry.types):
            return entry
    # A module has no graph before it is exported.
    if any(name in names for name in ("torch.nn.modules.module.Module", "torch.jit._script.ScriptModule")):
        raise ModelError(
            f"{type(model).__name__} is a PyTorch module; export it first: "
            "torch.export.export(module.eval(), (example,))"
        )
    raise ModelError(
        f"a {type(model).__name__} is no model; give an onnx.ModelProto, a torch.export.ExportedProgram, "
        "a tvm.IRModule, or a file's path"
    )
