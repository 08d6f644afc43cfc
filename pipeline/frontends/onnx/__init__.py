"""ONNX files and models in memory -> Relax, under the model's names."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.core.packed_model import ONNX_RUNTIME
from pipeline.core.shapes import Shapes, is_open
from pipeline.errors import MissingExtra, ModelError, reason
from pipeline.frontends.cards.ultralytics import exported_size
from pipeline.frontends.input_shapes import check_dtype, resolve
from pipeline.model.imported_model import ImportedModel
from pipeline.system.distribution import install_command
from pipeline.system.native_output import quietly
from pipeline.tvm.access import compiler_lock

try:
    import onnx
except ImportError as error:
    raise MissingExtra(f"reading ONNX models needs the 'onnx' extra; run: {install_command('onnx')}") from error

from pipeline.frontends.onnx import external_data
from pipeline.frontends.onnx.conversion import convert
from pipeline.frontends.onnx.packed_ends import model_inputs, why_packed
from pipeline.frontends.onnx.sparse_constants import fill_in

_DTYPES = {
    number: name.lower() for name, number in onnx.TensorProto.DataType.items() if "FLOAT" in name or "INT" in name
}

MOST_DIGITS = 9
"""Digits of an extent written as a name; no tensor has more elements."""

# What exporters call an extent that has no name.
_UNKNOWN_NAMES = ("?", "-1", "None")


def load(path: Path, shapes: Shapes, *, fallback: bool = True) -> ImportedModel:
    """Read an ONNX file with extents or names for symbolic inputs.

    Operators that cannot be imported are left to ONNX Runtime if `fallback` says so and that is installed. Raises
    `ModelError` if the file is not a valid ONNX model or uses what is not supported; all such operators are named.
    """
    model, data = _parse(path, lambda: external_data.load(path), "export it again, or check the path")
    return _convert(path, model, data, shapes, fallback=fallback)


def from_object(model: Any, shapes: Shapes, *, fallback: bool = True) -> ImportedModel:
    """Import an unchanged ``onnx.ModelProto`` under its graph's name.

    Raises `ModelError` if a file would raise it, the model's tensors lie in data files, or it has 2 GiB or more.
    """
    path = _memory_path(model)
    copy, data = _parse(path, lambda: external_data.from_object(path, model), "export it again")
    return _convert(path, copy, data, shapes, fallback=fallback)


def read_fixed(model: Any, shapes: Shapes) -> tuple[Path, Any]:
    """Return a model with fixed input shapes, and its path or name.

    Large tensors stay in their files; see `external_data.load`.
    """
    if isinstance(model, str | Path):
        path = Path(model)
        proto, _ = _parse(path, lambda: external_data.load(path), "export it again, or check the path")
    else:
        path = _memory_path(model)
        proto, _ = _parse(path, lambda: external_data.from_object(path, model), "export it again")
    _fix_shapes(path, proto, shapes)
    return path, proto


def _memory_path(model: Any) -> Path:
    # Messages and the graph call a file's model by its path; a slash would be taken for a folder.
    return Path(str(model.graph.name).replace("/", "_") or "model")


def _convert(
    path: Path,
    model: Any,
    data: external_data.ExternalData,
    shapes: Shapes,
    *,
    fallback: bool,
) -> ImportedModel:
    if not fallback or not ONNX_RUNTIME.is_installed:
        _check_types(path, model)
    _check_dtypes(path, model)
    fill_in(model.graph)
    notes = _fix_shapes(path, model, shapes)
    # TVM's importer warns and prints, also from C++, which would stand between a command's own lines.
    with compiler_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fixed = not is_open(shapes)
        fallback = fallback and fixed and ONNX_RUNTIME.is_installed
        imported_model = quietly(lambda: convert(path, model, data, fixed=fixed, fallback=fallback))
    return replace(imported_model, notes=(*notes, *imported_model.notes), metadata=_properties(model))


def _parse(
    path: Path, read: Callable[[], tuple[Any, external_data.ExternalData]], remedy: str
) -> tuple[Any, external_data.ExternalData]:
    """Return the result of `read`, its errors as ours with a remedy."""
    try:
        model, data = read()
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 - protobuf and the checker raise several unrelated types
        raise ModelError(f"{str(path)!r} is not a valid ONNX model: {reason(error, line=0)}; {remedy}") from None
    if damaged_name := next((name for name in _names(model.graph) if not isinstance(name, str)), None):
        raise ModelError(
            f"{str(path)!r} is not a valid ONNX model: the name {damaged_name!r} is no UTF-8; export it again"
        )
    if not model.graph.node:
        raise ModelError(f"{str(path)!r} is not a valid ONNX model: it has no operators; {remedy}")
    return model, data


def _names(graph: Any) -> Iterator[Any]:
    """Yield a graph's names; invalid UTF-8 is bytes."""
    for value in (*graph.input, *graph.output, *graph.initializer):
        yield value.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)


def _check_types(path: Path, model: Any) -> None:
    """Raise `ModelError` for types only islands read and make."""
    for value in (*model_inputs(model), *model.graph.output):
        if text := why_packed(value.type):
            raise ModelError(
                f"{str(path)!r}: {value.name!r} {text}, which only ONNX Runtime takes; allow the fallback, for which "
                "the extra 'onnxruntime' has to be installed, or take it off the model"
            )


def _check_dtypes(path: Path, model: Any) -> None:
    """Raise `ModelError` for inputs and outputs without a dtype of arrays."""
    for value in (*model_inputs(model), *model.graph.output):
        check_dtype(repr(str(path)), value.name, _DTYPES.get(value.type.tensor_type.elem_type, "float32"))


def _fix_shapes(path: Path, model: Any, shapes: Shapes) -> tuple[str, ...]:
    """Write the inputs' shapes into the model; return the assumptions."""
    tensors = [value for value in model_inputs(model) if value.type.WhichOneof("value") == "tensor_type"]
    inputs = {value.name: value.type.tensor_type for value in tensors}
    patterns = {name: _pattern(tensor) for name, tensor in inputs.items()}
    names = {extent for pattern in patterns.values() for extent in pattern or ()}
    # Nobody states extents: the exporter may have, of the pictures that it traced the model with.
    size = exported_size(_properties(model)) if not shapes and {"height", "width"} <= names else {}
    input_shapes = resolve(repr(str(path)), patterns, shapes or size)
    for name, shape in input_shapes.shapes.items():
        inputs[name].shape.Clear()
        # Of a number, even for no dimension at all.
        inputs[name].shape.SetInParent()
        for extent in shape:
            dimension = inputs[name].shape.dim.add()
            if isinstance(extent, str):
                dimension.dim_param = extent
            else:
                dimension.dim_value = extent
    options = " ".join(f"--shape {name}={extent}" for name, extent in size.items())
    note = f"{str(path)!r} leaves the size of pictures open, which becomes that of its export; others are given by "
    return (note + options, *input_shapes.notes) if size else input_shapes.notes


def _properties(model: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


def _pattern(tensor: Any) -> list[int | str | None] | None:
    """Return a model's pattern of an input's extents."""
    if not tensor.HasField("shape"):
        return None
    pattern = [_extent(dimension) for dimension in tensor.shape.dim]
    # Some exporters write 0 for a batch that they do not know; of one dimension, a tensor may well have no element.
    if len(pattern) > 1 and pattern[0] == 0:
        pattern[0] = None
    return pattern


def _extent(dimension: Any) -> int | str | None:
    # An extent is a number or a name; where it has a name, protobuf gives 0 for the number.
    name = str(dimension.dim_param)
    if name.isdecimal() and len(name) <= MOST_DIGITS:
        return int(name)
    # Some exporters write -1 for an extent that they do not know.
    if name in _UNKNOWN_NAMES or (dimension.HasField("dim_value") and dimension.dim_value < 0):
        return None
    return int(dimension.dim_value) if dimension.HasField("dim_value") else name or None
