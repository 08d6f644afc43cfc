"""ONNX models for the quantiser: read, shaped, modernised and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import ModelError, near
from pipeline.frontends.cards import find_card
from pipeline.frontends.onnx.packed_ends import model_inputs
from pipeline.system.files import utf8_folder
from pipeline.system.optional import require

Shapes = Mapping[str, Sequence[int | str]]

OLDEST = 13
"""Version of the operators; before, DequantizeLinear has one scale for a whole tensor only."""

_EXTRA, _PURPOSE = "quantize", "quantising a model"
# TensorProto.DataType of onnx.proto: those of which frames can be made.
_KINDS = {1: "float32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 10: "float16", 11: "float64"}


def load(path: Path) -> Any:
    """Return an ONNX model; `ModelError` if it is none."""
    onnx = require("onnx", _EXTRA, _PURPOSE)
    try:
        model = onnx.load(path, load_external_data=False)
        # Its C++ code opens the data files, and takes no other names.
        with utf8_folder(path.parent) as folder:
            onnx.load_external_data_for_model(model, str(folder))
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 - whatever its parser stumbles over
        raise ModelError(f"{str(path)!r} is not an ONNX model: {error}") from None
    return model


class OnnxEnds(NamedTuple):
    """Inputs, outputs and card of a model; no outputs if their shapes are open."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    card: ModelCard


def read_ends(path: Path, shapes: Shapes | None = None) -> OnnxEnds:
    """Return the ends of an ONNX model for calibration.

    Raises `ModelError` if it is no ONNX model, `shapes` do not fit it, or an input has other open extents.

    `shapes`: extents of inputs whose shapes are open; where a name stands, and of batches that are open, 1 is taken.
    """
    model = load(path)
    give_shapes(model, shapes or {})
    inputs = tuple(_spec(value_info) for value_info in model_inputs(model))
    try:
        outputs = tuple(_spec(value_info) for value_info in model.graph.output)
    except ModelError:
        outputs = ()
    card, _ = find_card(path, properties(model), {spec.name: spec.dtype for spec in inputs})
    return OnnxEnds(inputs, outputs, card)


def properties(model: Any) -> dict[str, str]:
    """Return the model's metadata."""
    return {entry.key: entry.value for entry in model.metadata_props}


def give_shapes(model: Any, shapes: Shapes) -> None:
    """Set the open extents of inputs, and of the same names elsewhere.

    Raises `ModelError` if an input is unknown, or has another number of extents, or another extent.
    """
    values = {value_info.name: value_info for value_info in model_inputs(model)}
    numbers: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in values:
            raise ModelError(f"the model has no input {name!r}; it has {', '.join(values)}{near(name, values)}")
        tensor = values[name].type.tensor_type
        # Without this field, even the number of extents is open.
        if not tensor.HasField("shape"):
            for _ in shape:
                tensor.shape.dim.add()
        dims = tensor.shape.dim
        if len(dims) != len(shape):
            raise ModelError(f"input {name!r} has {len(dims)} extents, and {len(shape)} are given for it")
        for dim, extent in zip(dims, shape, strict=True):
            _give(name, dim, extent, numbers)
    # The same name stands for the same number everywhere in a model.
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in numbers:
                dim.dim_value = numbers[dim.dim_param]


def _give(name: str, dim: Any, extent: int | str, numbers: dict[str, int]) -> None:
    # 0 stands for an extent that is open, or has a name.
    if dim.dim_value > 0:
        if extent != dim.dim_value:
            raise ModelError(f"input {name!r} has an extent of {dim.dim_value}, and {extent} is given for it")
        return
    if isinstance(extent, str):
        return
    if dim.dim_param and numbers.setdefault(dim.dim_param, extent) != extent:
        raise ModelError(f"extent {dim.dim_param!r} cannot be {numbers[dim.dim_param]} and {extent}")
    dim.dim_value = extent


def modernize(model: Any) -> Any:
    """Return a model in operator versions the quantiser gets right.

    Raises `ModelError` if it is older and cannot be converted.
    """
    version = next((opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")), OLDEST)
    if version >= OLDEST:
        return model
    converter = require("onnx.version_converter", _EXTRA, _PURPOSE)
    try:
        return converter.convert_version(model, OLDEST)
    except Exception as error:
        raise ModelError(
            f"the model's operators are of version {version}, and cannot be converted to version {OLDEST}, the oldest "
            f"that can be quantised: {error}; export it with a newer one"
        ) from error


def check(model: Any) -> bytes:
    """Return a model's bytes; `ModelError` if ONNX Runtime refuses it."""
    checker = require("onnx.checker", _EXTRA, _PURPOSE)
    # Behind the line above, which says which extra has what this needs.
    from pipeline.frontends.onnx.reference import open_session

    runtime = require("onnxruntime", _EXTRA, _PURPOSE)
    # Deterministic, so that the same model and frames give the same file.
    data: bytes = model.SerializeToString(deterministic=True)
    options = runtime.SessionOptions()
    # Fatal errors only: what is wrong is raised below.
    options.log_severity_level = 4
    try:
        checker.check_model(model)
        open_session(model, options)
    except Exception as error:
        raise ModelError(f"ONNX Runtime cannot run what its quantiser made of the model: {error}") from error
    return data


def _spec(value: Any) -> TensorSpec:
    tensor = value.type.tensor_type
    extents = [dim.dim_value for dim in tensor.shape.dim]
    kind = _KINDS.get(tensor.elem_type)
    if kind is None:
        raise ModelError(f"input {value.name!r} has an unusual type, of which no frames can be given")
    if not tensor.HasField("shape") or any(extent <= 0 for extent in extents[1:]):
        extent_texts = [str(extent) if extent > 0 else "..." for extent in extents] or ["..."]
        raise ModelError(
            f"input {value.name!r} has open extents beside the batch; give them numbers, as in "
            f"--shape {value.name}={','.join(extent_texts)}"
        )
    # An open batch remains open; one frame is calibrated with at a time.
    return TensorSpec(value.name, tuple(extent if extent > 0 else 1 for extent in extents), kind)
