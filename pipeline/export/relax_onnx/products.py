"""Matrix products."""

from __future__ import annotations

from typing import Any

from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.operands import dtype, shape
from pipeline.export.relax_onnx.tensors import Tensor


def _product(graph: GraphWriter, call: Any) -> Tensor:
    first, second = (graph.cast(graph.tensor(operand), dtype(call)) for operand in call.args)
    return graph.node("MatMul", [first, second], shape(call))


def _einsum(graph: GraphWriter, call: Any) -> Tensor:
    equation = str(call.attrs.subscripts)
    return graph.node("Einsum", graph.results(call.args[0]), shape(call), dtype(call), equation=equation)


WRITERS = {"matmul": _product, "einsum": _einsum}
