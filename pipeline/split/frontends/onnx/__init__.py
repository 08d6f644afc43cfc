"""ONNX files and models in memory -> Relax, with the model's own names."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.core.native_output import quietly
from pipeline.core.tvm_access import compiler_lock
from pipeline.errors import MissingExtra, ModelError, near, reason
from pipeline.split.model import ImportedModel

try:
    import onnx
except ImportError as error:
    raise MissingExtra("reading ONNX models needs the 'onnx' extra; run: pip install 'soc-pipeline[onnx]'") from error

from pipeline.split.frontends.onnx import external_data
from pipeline.split.frontends.onnx.conversion import convert, has_runtime


def load(path: Path, shapes: Mapping[str, Sequence[int | str]], *, fallback: bool = True) -> ImportedModel:
    """Read an ONNX file; `shapes` gives extents, or names for them, to inputs that have symbolic ones.

    What cannot be imported is left to ONNX Runtime if `fallback` says so and that is installed.

    Raises
    ------
    ModelError
        If the file is not a valid ONNX model or uses what is not supported; all such operators are named.
    """
    model, data = _parse(path, lambda: external_data.load(path), "export it again, or check the path")
    return _convert(path, model, data, shapes, fallback=fallback)


def from_object(model: Any, shapes: Mapping[str, Sequence[int | str]], *, fallback: bool = True) -> ImportedModel:
    """Import an ``onnx.ModelProto``, which stays as it is; its graph's name is the model's.

    Raises
    ------
    ModelError
        As for a file, and if the model's tensors lie in data files or it has 2 GiB or more.
    """
    # Messages and the graph call a file's model by its path; a slash would be taken for a folder.
    path = Path(str(model.graph.name).replace("/", "_") or "model")
    copy, data = _parse(path, lambda: external_data.from_object(path, model), "export it again")
    return _convert(path, copy, data, shapes, fallback=fallback)


def _convert(
    path: Path,
    model: Any,
    data: external_data.ExternalData,
    shapes: Mapping[str, Sequence[int | str]],
    *,
    fallback: bool,
) -> ImportedModel:
    _check_types(path, model)
    _fix_shapes(path, model, shapes)
    # TVM's importer warns and prints, also from C++, which would stand between a command's own lines.
    with compiler_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fixed = not any(isinstance(extent, str) for shape in shapes.values() for extent in shape)
        return quietly(lambda: convert(path, model, data, fixed=fixed, fallback=fallback and fixed and has_runtime()))


def _parse(
    path: Path, read: Callable[[], tuple[Any, external_data.ExternalData]], remedy: str
) -> tuple[Any, external_data.ExternalData]:
    """Return what `read` does, with its errors as ours; `remedy` says what to do about a model that is not valid."""
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
    """Yield the names in a graph; those that are no UTF-8 are bytes."""
    for value in (*graph.input, *graph.output, *graph.initializer):
        yield value.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)


def _check_types(path: Path, model: Any) -> None:
    for value in (*_inputs(model), *model.graph.output):
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type == onnx.TensorProto.STRING:
            raise ModelError(f"{str(path)!r}: {value.name!r} holds strings, which no device computes with; take it off")
    for value in model.graph.output:
        # An output may state no type at all; it is a tensor unless it says otherwise.
        if value.type.WhichOneof("value") not in (None, "tensor_type"):
            raise ModelError(f"{str(path)!r}: output {value.name!r} is no tensor, but a sequence or a map")


def _inputs(model: Any) -> list[Any]:
    # Up to IR version 3 each initializer had to be an input as well.
    parameters = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in parameters]


def _fix_shapes(path: Path, model: Any, shapes: Mapping[str, Sequence[int | str]]) -> None:
    for value in _inputs(model):
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            raise ModelError(f"{str(path)!r}: input {value.name!r} is no tensor with a known number of dimensions")
    inputs = {value.name: value.type.tensor_type.shape.dim for value in _inputs(model)}
    for name, shape in shapes.items():
        if name not in inputs:
            raise ModelError(f"{str(path)!r} has no input {name!r}; it has {', '.join(inputs)}{near(name, inputs)}")
        if len(shape) != len(inputs[name]):
            raise ModelError(
                f"input {name!r} has {len(inputs[name])} dimensions, but the given shape {list(shape)} has {len(shape)}"
            )
        for dimension, extent in zip(inputs[name], shape, strict=True):
            # An extent is a number or a name; where it has a name, protobuf gives 0 for the number.
            if dimension.dim_value > 0 and dimension.dim_value != extent:
                raise ModelError(
                    f"input {name!r} has a fixed extent {dimension.dim_value} where the shape {list(shape)} "
                    f"has {extent}"
                )
            if isinstance(extent, str):
                dimension.dim_param = extent
            else:
                dimension.dim_value = extent
    # Only names that the caller gave stay open; others, such as the exporter's "batch", still need a number.
    _check_fixed(inputs, {extent for shape in shapes.values() for extent in shape if isinstance(extent, str)})


def _check_fixed(inputs: Mapping[str, Any], names: Collection[str]) -> None:
    """Raise `ModelError` for extents that are neither numbers nor have one of `names`."""
    open_inputs = {
        name: dimensions
        for name, dimensions in inputs.items()
        if not all(dimension.dim_value > 0 or dimension.dim_param in names for dimension in dimensions)
    }
    if not open_inputs:
        return
    shapes = [
        f"{name!r} has the shape {[dimension.dim_value or dimension.dim_param or '?' for dimension in dimensions]}"
        for name, dimensions in open_inputs.items()
    ]
    # Some exporters write -1 for an extent that they do not know.
    options = [
        f"--shape {name}={','.join(str(max(dimension.dim_value, 1)) for dimension in dimensions)}"
        for name, dimensions in open_inputs.items()
    ]
    raise ModelError(f"input {', '.join(shapes)}; give it fixed extents, such as {' '.join(options)}")
