"""Parameters of an ONNX model in any file, checked before use."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from pipeline.core.packed_model import ONNX_RUNTIME
from pipeline.errors import ModelError
from pipeline.frontends.onnx.node_order import sort_topologically
from pipeline.frontends.onnx.outline import outline
from pipeline.frontends.onnx.reference import literal_options, open_session
from pipeline.frontends.onnx.simplification.tensors import is_external
from pipeline.model.imported_model import Parameters
from pipeline.system.files import utf8_folder
from pipeline.system.memory import LARGE

_PLAIN = "?bBhHiIqQefd"
"""NumPy's own dtypes; others, such as bfloat16, are left to the onnx package."""


# Operators of the first exporters that never became ONNX's; the list is that of onnx's checker.
_EXPERIMENTAL = {
    "ATen", "Affine", "ConstantFill", "Crop", "DynamicSlice", "GRUUnit", "GivenTensorFill", "ImageScaler",
    "ParametricSoftplus", "Scale", "ScaledTanh",
}  # fmt: skip


class ExternalData(Parameters):
    """Tensors of a model outside its protobuf."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def tensor(self, proto: Any) -> Any:
        """Return an unread tensor of a file."""
        location, offset, _ = _file_location(proto)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(proto.data_type)
        return self.tensor_in(self._path.parent / location, offset, dtype, proto.dims)


def load(path: Path) -> tuple[Any, ExternalData]:
    """Return a model without its large tensors, and these, mapped.

    Raises `ModelError` if a data file is missing, or shorter than the model says; `OSError` if the model cannot be
    read; errors of the onnx package on an invalid model.
    """
    model = _read_outline(path)
    # Before the checker, which opens the files that a model names, wherever they are.
    for tensor in external_tensors(model):
        _check(path, tensor)
    check_model(model, path)
    # Small ones become part of the model: folding reads them anyway, and bfloat16 needs the package's conversion.
    for tensor in external_tensors(model):
        if not _stays(tensor):
            with utf8_folder(path.parent) as folder:
                onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
            tensor.data_location = tensor.DEFAULT
            del tensor.external_data[:]
    return model, ExternalData(path)


def _read_outline(path: Path) -> Any:
    try:
        # The outline is a few kilobytes also of a model of gigabytes, over 2 of which protobuf cannot parse.
        return onnx.ModelProto.FromString(outline(path))
    except ValueError:
        # The package's own reader says best what is wrong.
        return onnx.load(path, load_external_data=False)


def data_files(path: Path) -> set[Path]:
    """Return the files beside a valid model with tensors of it."""
    return {path.parent / _file_location(tensor)[0] for tensor in external_tensors(_read_outline(path))}


def from_object(path: Path, model: Any) -> tuple[Any, ExternalData]:
    """Return a copy of a model in memory; `path` is its name.

    Raises `ModelError` if its tensors lie in data files, or it is too large for one protobuf; errors of the onnx
    package on an invalid model.
    """
    if tensor := next(external_tensors(model), None):
        # onnx.load(..., load_external_data=False) leaves them there, and the object does not say in which folder.
        raise ModelError(
            f"{str(path)!r} keeps tensor {tensor.name!r} in the data file {_file_location(tensor)[0]!r}, and a model "
            "in memory has no folder; give the path of its file"
        )
    try:
        data = model.SerializeToString()
    except Exception:  # noqa: BLE001 - protobuf's error has no public name; no field is required, so it is the size
        data = None
    # Some implementations of protobuf write more than any of them reads.
    if data is None or len(data) > onnx.checker.MAXIMUM_PROTOBUF:
        raise ModelError(
            f"{str(path)!r} is larger than 2 GiB; save it by onnx.save(..., save_as_external_data=True), and give "
            "the path of its file"
        )
    copy = onnx.ModelProto.FromString(data)
    check_model(copy)
    return copy, ExternalData(path)


def check_model(model: Any, path: Path | None = None) -> None:
    """Raise for an invalid model, unless ONNX Runtime takes it.

    Its nodes are put into topological order if they are in none.
    """
    try:
        # Of these the checker warns on the standard output, which is for results.
        if not ONNX_RUNTIME.is_installed or not any(node.op_type in _EXPERIMENTAL for node in model.graph.node):
            _check_by_onnx(model, path)
            return
        refusal = onnx.checker.ValidationError("it has experimental operators that ONNX Runtime does not take")
    except onnx.checker.ValidationError as error:
        refusal = error
    # The checker wants more than runtimes do, such as a shape for each output and nodes in their order.
    if not ONNX_RUNTIME.is_installed or not _is_runnable(model if path is None else path):
        raise refusal
    nodes = list(sort_topologically(model.graph.node))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _check_by_onnx(model: Any, path: Path | None) -> None:
    if path is not None and any(is_external(tensor) for tensor in _constants(model.graph)):
        # The checker takes them from a file only.
        with utf8_folder(path.parent) as folder:
            onnx.checker.check_model(folder / path.name)
    else:
        # From memory: given the path, the checker would read the whole file again.
        onnx.checker.check_model(_without_data(model))


def _is_runnable(model: Any) -> bool:
    try:
        open_session(model, literal_options())
    except Exception:  # noqa: BLE001 - it raises several unrelated types
        return False
    return True


def _stays(tensor: Any) -> bool:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return _file_location(tensor)[2] >= LARGE and np.dtype(dtype).char in _PLAIN


def _constants(graph: Any) -> Iterator[Any]:
    return (attribute.t for node in graph.node for attribute in node.attribute if attribute.HasField("t"))


def external_tensors(model: Any) -> Iterator[Any]:
    """Yield a model's tensors in files."""
    return (tensor for tensor in (*model.graph.initializer, *_constants(model.graph)) if is_external(tensor))


def _without_data(model: Any) -> Any:
    """Return a copy for the checker, external tensors as inputs."""
    outline_model = onnx.ModelProto()
    outline_model.CopyFrom(model)
    # Up to version 3 initializers have to be inputs as well, which neither all exporters nor ONNX Runtime respect.
    outline_model.ir_version = max(outline_model.ir_version, 4)
    graph = outline_model.graph
    input_names = {tensor.name for tensor in graph.input}
    inner_tensors = [tensor for tensor in model.graph.initializer if not is_external(tensor)]
    outer_tensors = [
        tensor for tensor in model.graph.initializer if is_external(tensor) and tensor.name not in input_names
    ]
    graph.input.extend(
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in outer_tensors
    )
    del graph.initializer[:]
    graph.initializer.extend(inner_tensors)
    return outline_model


def _check(path: Path, tensor: Any) -> None:
    location, offset, length = _file_location(tensor)
    relative = Path(location)
    # A model from elsewhere must not read /etc/passwd, nor tell by an error what files there are.
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
    # Mapped memory behind the end of a file is no error of Python, but ends the process by SIGBUS.
    if (size := file.stat().st_size) < offset + length:
        raise ModelError(
            f"{str(path)!r} keeps tensor {tensor.name!r} in the data file {location!r}, which has {size} bytes where "
            f"at least {offset + length} are needed; copy it again"
        )
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    expected_length = math.prod(tensor.dims) * dtype.itemsize
    # Dtypes that NumPy lacks may be packed, two values of four bits in one byte; the package checks these.
    if min(tensor.dims, default=0) < 0 or (dtype.char in _PLAIN and length != expected_length):
        raise ModelError(
            f"{str(path)!r} keeps {length} bytes for tensor {tensor.name!r}, whose shape {list(tensor.dims)} and dtype "
            f"{dtype} need {expected_length}; export it again"
        )


def _file_location(tensor: Any) -> tuple[str, int, int]:
    """Return file, offset and length, by default the shape's need."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    length = _number(entries, "length")
    # The key is optional (ONNX, ExternalData.md); the offset is as well, and then 0.
    if "length" not in entries:
        itemsize = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
        length = math.prod(tensor.dims) * itemsize
    return entries.get("location", ""), _number(entries, "offset"), length


def _number(entries: dict[str, str], key: str) -> int:
    text = entries.get(key, "0")
    return int(text) if text.isdecimal() else 0
