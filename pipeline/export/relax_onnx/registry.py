"""Table of writers: an operator of Relax -> its form in ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.export.relax_onnx import (
    convolutions,
    elementwise,
    indexing,
    integer_arithmetic,
    movement,
    normalization,
    pooling,
    products,
    reductions,
    requantization,
    resizing,
    sorting,
)
from pipeline.export.relax_onnx.graph_writer import GraphWriter, Results
from pipeline.export.relax_onnx.islands import write_island
from pipeline.export.relax_onnx.quantized_arithmetic import write_layer
from pipeline.export.relax_onnx.recurrent import write_recurrent
from pipeline.export.relax_onnx.tensors import Unwritable
from pipeline.model import byte_resizing
from pipeline.model.passes import bindings
from pipeline.model.requantization import Requantization

Writer = Callable[[GraphWriter, Any], Results]
"""Writer of a call's nodes; raises `Unwritable` for calls without a form in ONNX."""

_FAMILIES: tuple[Any, ...] = (
    convolutions, elementwise, indexing, integer_arithmetic, movement, normalization, pooling, products, reductions,
    requantization, resizing, sorting,
)  # fmt: skip

WRITERS: dict[str, Writer] = {name: writer for family in _FAMILIES for name, writer in family.WRITERS.items()}
"""Writers by the operator's name, without the namespace of Relax."""


def write_call(graph: GraphWriter, call: Any) -> Results:
    """Write one call of an operator."""
    if bindings.island(call):
        return write_island(graph, call)
    if bindings.kernel(call) is not None:
        return _write_kernel(graph, call)
    writer = WRITERS.get(str(call.op.name).removeprefix("relax."))
    if writer is None:
        raise Unwritable
    return writer(graph, call)


def _write_kernel(graph: GraphWriter, call: Any) -> Results:
    operand = call.args[1].fields[0]
    if (rescaling := Requantization.of(call)) is not None:
        layer = None if graph.exact else write_layer(graph, rescaling, operand)
        return requantization.write_requantization(graph, rescaling, operand) if layer is None else layer
    form = bindings.form_of(call)
    if form.get("kind") == "Identity":
        # Of its first operand; another one is there for it to be no constant.
        return graph.tensor(operand)
    if form.get("kind") == byte_resizing.KIND:
        return resizing.write_byte_resize(graph, call)
    if form.get("kind") not in ("RNN", "LSTM", "GRU"):
        raise Unwritable
    return write_recurrent(graph, call, form)
