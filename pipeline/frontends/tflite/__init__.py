"""TFLite files -> Relax, with the names of the model's tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pipeline.core.packed_model import LITERT
from pipeline.core.shapes import Shapes
from pipeline.errors import MissingExtra, ModelError
from pipeline.frontends.input_shapes import InputShapes, resolve
from pipeline.model.imported_model import ImportedModel
from pipeline.system.distribution import install_command
from pipeline.system.native_output import quietly
from pipeline.tvm.access import compiler_lock

try:
    import tflite  # noqa: F401 - each module of this folder needs it
except ImportError as error:
    message = f"reading TFLite models needs the 'tflite' extra; run: {install_command('tflite')}"
    raise MissingExtra(message) from error

from pipeline.frontends.tflite import tensor_shapes
from pipeline.frontends.tflite.conversion import convert
from pipeline.frontends.tflite.flatbuffer import TfliteGraph, TfliteTensor
from pipeline.frontends.tflite.folding import fold
from pipeline.frontends.tflite.metadata import read_metadata
from pipeline.frontends.tflite.variables import open_variables

_BLOCKWISE = 2
"""Kind of quantisation with a scale for each block, in LiteRT's schema; the package knows an older one."""


def load(path: Path, shapes: Shapes, *, fallback: bool = True) -> ImportedModel:
    """Read a TFLite file; `shapes` may state the inputs' extents.

    Operators that are not converted to just what LiteRT computes are left to LiteRT if `fallback` says so and that is
    installed.  Raises `ModelError` if the file is damaged, or uses what is not supported; all such operators are named.
    """
    graph, notes = read_graph(path, shapes)
    with compiler_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imported_model = quietly(lambda: convert(path, graph, fallback=fallback and LITERT.is_installed))
    return replace(imported_model, notes=(*notes, *imported_model.notes), metadata=read_metadata(path))


def read_graph(path: Path, shapes: Shapes) -> tuple[TfliteGraph, tuple[str, ...]]:
    """Return a file's shaped graph, and the assumptions.

    Raises `ModelError` if the file is damaged, or its inputs and outputs are of dtypes that no device has.
    """
    with _reading(path):
        content, first_values = open_variables(path.read_bytes())
        graph = TfliteGraph(content)
        graph.first_values = first_values
        _check_types(path, graph)
        _check_order(path, graph)
        _check_blocks(path, graph)
        fold(graph)
    input_shapes = _input_shapes(path, graph, shapes)
    with _reading(path):
        tensor_shapes.resolve(path, graph, [input_shapes.shapes[tensor.name] for tensor in graph.inputs])
    return graph, input_shapes.notes


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors of damaged files into `ModelError`. Each field may point beside the buffer."""
    try:
        yield
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except Exception as error:  # noqa: BLE001 - of struct, NumPy, flatbuffers, and whatever follows a wrong number
        raise ModelError(f"{str(path)!r} is not a valid TFLite model: {error}; convert it again") from None


def _check_types(path: Path, graph: TfliteGraph) -> None:
    for tensor in (*graph.inputs, *graph.outputs):
        if not tensor.in_frames and tensor.dtype != "string":
            raise ModelError(
                f"{str(path)!r}: {tensor.name!r} is of {tensor.dtype}, which no device computes with; take it off"
            )


def _check_order(path: Path, graph: TfliteGraph) -> None:
    """Raise `ModelError` for reads before their making, as in cycles. LiteRT runs operators as they stand."""
    results = [tensor for operator in graph.operators for tensor in operator.outputs]
    pending = {tensor.number for tensor in results if not tensor.is_variable and not tensor.is_constant}
    for operator in graph.operators:
        if early := next((tensor for tensor in operator.operands if tensor.number in pending), None):
            raise ModelError(
                f"{str(path)!r} is not a valid TFLite model: {operator} reads {early.name!r} before an operator makes "
                "it, as in a cycle; convert it again"
            )
        pending.difference_update(tensor.number for tensor in operator.outputs)


def _check_blocks(path: Path, graph: TfliteGraph) -> None:
    """Raise `ModelError` for block sizes that end LiteRT's process."""
    tables = [graph.subgraph.Tensors(tensor.number).Quantization() for tensor in graph.tensors]
    for operator in graph.operators:
        for tensor in operator.operands:
            table = tables[tensor.number]
            in_blocks = table is not None and table.DetailsType() == _BLOCKWISE
            if in_blocks and tensor.dtype == "int8" and operator.kind != "FULLY_CONNECTED":
                raise ModelError(
                    f"{str(path)!r}: {operator} reads {tensor.name!r}, which is quantised by blocks; LiteRT takes that "
                    "in FULLY_CONNECTED only, and elsewhere of four bits; quantise it by channels"
                )


def _input_shapes(path: Path, graph: TfliteGraph, shapes: Shapes) -> InputShapes:
    """Return the inputs' shapes with assumptions."""
    patterns = {tensor.name: _pattern(graph, tensor) for tensor in graph.inputs}
    # The file has 1 for an extent that it leaves open, and that is what LiteRT takes.
    file_shapes = {
        tensor.name: tensor.shape
        for tensor in graph.inputs
        if None in patterns[tensor.name][1:] and tensor.name not in shapes
    }
    input_shapes = resolve(repr(str(path)), patterns, {**file_shapes, **shapes})
    notes = [
        f"{str(path)!r} leaves extents of input {name!r} open, which become those of the file, {list(shape)}; "
        f"others are given by --shape {name}={','.join(map(str, shape))}"
        for name, shape in file_shapes.items()
    ]
    return replace(input_shapes, notes=(*input_shapes.notes, *notes))


def _pattern(graph: TfliteGraph, tensor: TfliteTensor) -> list[int | None]:
    """Return an input's extents, None for open ones."""
    table = graph.subgraph.Tensors(tensor.number)
    if table.ShapeSignatureLength() != len(tensor.shape):
        return list(tensor.shape)
    signature = table.ShapeSignatureAsNumpy().tolist() if tensor.shape else []
    return [None if open_extent < 0 else extent for open_extent, extent in zip(signature, tensor.shape, strict=True)]
