"""Where an ONNX model keeps its parameters, its own file or others beside it; checked before they are used."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from pipeline.errors import ModelError
from pipeline.memory import LARGE
from pipeline.split.frontends.mapped import Parameters
from pipeline.split.frontends.onnx_outline import outline

_PLAIN = "?bBhHiIqQefd"
"""Dtypes that NumPy has itself; others, such as bfloat16, are left to the onnx package."""


class Data(Parameters):
    """The tensors of a model that its protobuf does not hold.

    Parameters
    ----------
    path : Path
        The model's file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def tensor(self, proto: Any) -> Any:
        """Return a tensor that lies in a file, without reading it."""
        location, offset, _ = _stored(proto)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(proto.data_type)
        return self.tensor_in(self._path.parent / location, offset, dtype, proto.dims)


def load(path: Path) -> tuple[Any, Data]:
    """Return a model whose large tensors stay where they are, and these.

    Raises
    ------
    ModelError
        If a data file is missing, or shorter than the model says.
    OSError
        If the model cannot be read.
    Exception
        What the onnx package raises of a model that is not valid.
    """
    try:
        model = onnx.ModelProto.FromString(outline(path))
    except ValueError:
        # The package's own reader says best what is wrong.
        model = onnx.load(path, load_external_data=False)
    for tensor in _external(model):
        _check(path, tensor)
    if any(is_external(each) for each in _constants(model.graph)):
        # The checker takes them from a file only.
        onnx.checker.check_model(path)
    else:
        onnx.checker.check_model(_without_data(model))
    for tensor in _external(model):
        if not _stays(tensor):
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
            tensor.data_location = tensor.DEFAULT
            del tensor.external_data[:]
    return model, Data(path)


def is_external(tensor: Any) -> bool:
    """Whether a tensor's data lie outside of its protobuf."""
    return bool(tensor.HasField("data_location") and tensor.data_location == tensor.EXTERNAL)


def _stays(tensor: Any) -> bool:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return _stored(tensor)[2] >= LARGE and np.dtype(dtype).char in _PLAIN


def _constants(graph: Any) -> Iterator[Any]:
    return (each.t for node in graph.node for each in node.attribute if each.HasField("t"))


def _external(model: Any) -> Iterator[Any]:
    return (each for each in (*model.graph.initializer, *_constants(model.graph)) if is_external(each))


def _without_data(model: Any) -> Any:
    """Return a copy for the checker, in which tensors that are elsewhere are inputs."""
    checked = onnx.ModelProto()
    checked.CopyFrom(model)
    graph = checked.graph
    declared = {each.name for each in graph.input}
    left = [each for each in model.graph.initializer if not is_external(each)]
    outside = [each for each in model.graph.initializer if is_external(each) and each.name not in declared]
    graph.input.extend(onnx.helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in outside)
    del graph.initializer[:]
    graph.initializer.extend(left)
    return checked


def _check(path: Path, tensor: Any) -> None:
    location, offset, length = _stored(tensor)
    relative = Path(location)
    if relative.is_absolute() or ".." in relative.parts:
        raise ModelError(
            f"{str(path)!r} keeps tensor {tensor.name!r} in the data file {location!r}, which is outside of the "
            "model's folder; put it into that folder"
        )
    file = path.parent / relative
    if not location or not file.is_file():
        raise ModelError(
            f"{str(path)!r} keeps tensor {tensor.name!r} in the data file {location!r}, which is not there; "
            "put it into the model's folder"
        )
    if (size := file.stat().st_size) < offset + length:
        raise ModelError(
            f"{str(path)!r} keeps tensor {tensor.name!r} in the data file {location!r}, which has {size} bytes where "
            f"at least {offset + length} are needed; copy it again"
        )
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    needed = math.prod(tensor.dims) * dtype.itemsize
    if min(tensor.dims, default=0) < 0 or (dtype.char in _PLAIN and length != needed):
        raise ModelError(
            f"{str(path)!r} keeps {length} bytes for tensor {tensor.name!r}, whose shape {list(tensor.dims)} and dtype "
            f"{dtype} need {needed}; export it again"
        )


def _stored(tensor: Any) -> tuple[str, int, int]:
    """Return file, offset and length; a length that is not given is what the shape needs."""
    stored = {entry.key: entry.value for entry in tensor.external_data}
    length = _number(stored, "length")
    if "length" not in stored:
        itemsize = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
        length = math.prod(tensor.dims) * itemsize
    return stored.get("location", ""), _number(stored, "offset"), length


def _number(stored: dict[str, str], key: str) -> int:
    text = stored.get(key, "0")
    return int(text) if text.isdecimal() else 0
