"""A stage's Relax module -> an ONNX model, for other compilers."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.ir import Call
from tvm.tirx import IntImm

from pipeline.errors import BuildError
from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.registry import write_call
from pipeline.export.relax_onnx.serialization import serialize
from pipeline.export.relax_onnx.tensors import Unwritable
from pipeline.model.passes.bindings import kind
from pipeline.system.optional import require


def write(module: Any, name: str, opset: int | None = None, *, exact: bool = False) -> Any:
    """Write a stage as an ONNX model.

    ``main`` of the module (`pipeline.split.extract.module`) is one dataflow block, and parameters are constants.
    `opset` is by default the lowest from 13 on that has all operators. With `exact`, the integer arithmetic of
    quantised TFLite models is written as it is: ONNX Runtime then computes the same bits, but slowly, and runtimes
    without numbers of 64 bits, such as OpenVINO, compute something else. By default such layers are DequantizeLinear, a
    layer of real numbers, and QuantizeLinear, whose results may differ by one step.

    Inputs and outputs of the model have the names and the order of those of ``main``. Above 2 GiB it can only be saved
    with external data. Raises `BuildError` if operators have no form in ONNX, at `opset` or at all; all of them are
    named.
    """
    require("onnx", "onnx", "writing ONNX models")
    main = module["main"]
    graph = GraphWriter(module, exact=exact)
    inputs = [graph.add_input(param) for param in main.params]
    refusals = _write_bindings(graph, [binding for block in main.body.blocks for binding in block.bindings])
    if refusals:
        raise BuildError(f"cannot be written as ONNX: {'; '.join(dict.fromkeys(refusals))}")
    body = main.body.body
    results = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    outputs = graph.outputs([(str(getattr(result, "name", "output")), graph.tensor(result)) for result in results])
    try:
        return serialize(name, graph.nodes, inputs, outputs, opset)
    except Unwritable as refusal:
        raise BuildError(f"cannot be written as ONNX: {refusal}") from None


def _write_bindings(graph: GraphWriter, bindings: list[Any]) -> list[str]:
    """Write the bindings; return the unwritable ones."""
    refusals = []
    for binding in bindings:
        tensor_name = str(binding.var.name)
        try:
            _refuse_symbolic(binding.var.ty)
            graph.bind(binding.var, _write_value(graph, binding.value))
        except Unwritable as refusal:
            reason = f": {refusal}" if str(refusal) else ""
            refusals.append(f"{_operator(binding.value)} (tensor {tensor_name!r}){reason}")
            graph.bind(binding.var, graph.placeholder(binding.var.ty))
    return refusals


def _write_value(graph: GraphWriter, value: Any) -> Any:
    if isinstance(value, relax.TupleGetItem):
        return graph.results(value.tuple_value)[value.index]
    if isinstance(value, relax.Tuple):
        return [graph.tensor(field) for field in value.fields]
    return write_call(graph, value) if isinstance(value, Call) else graph.tensor(value)


def _operator(value: Any) -> str:
    name = str(getattr(getattr(value, "op", None), "name", ""))
    return kind(value) if name in ("", "relax.call_tir", "relax.call_dps_packed") else name


def _refuse_symbolic(ty: Any) -> None:
    for field in getattr(ty, "fields", None) or [ty]:
        if any(not isinstance(extent, IntImm) for extent in getattr(field, "shape", None) or ()):
            raise Unwritable("its extents are not numbers; write it at a size")
