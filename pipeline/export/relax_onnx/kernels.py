"""Kernels with the name of their operator."""

from __future__ import annotations

from typing import Any

from pipeline.export.relax_onnx.graph_writer import GraphWriter, Results
from pipeline.export.relax_onnx.quantized_arithmetic import write_layer
from pipeline.export.relax_onnx.recurrent import write_recurrent
from pipeline.export.relax_onnx.requantization import write_requantization
from pipeline.export.relax_onnx.tensors import Unwritable
from pipeline.model.passes.bindings import form_of
from pipeline.model.requantization import Requantization


def write_kernel(graph: GraphWriter, call: Any) -> Results:
    """Write the operator of a kernel."""
    operand = call.args[1].fields[0]
    if (requantization := Requantization.of(call)) is not None:
        layer = None if graph.exact else write_layer(graph, requantization, operand)
        return write_requantization(graph, requantization, operand) if layer is None else layer
    form = form_of(call)
    if form.get("kind") == "Identity":
        # Of its first operand; another one is there for it to be no constant.
        return graph.tensor(operand)
    if form.get("kind") not in ("RNN", "LSTM", "GRU"):
        raise Unwritable
    return write_recurrent(graph, call, form)
