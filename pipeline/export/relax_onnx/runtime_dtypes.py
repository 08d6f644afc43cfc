"""Operators in wider dtypes, where ONNX or runtimes lack the narrow ones."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from pipeline.export.relax_onnx.tensors import Node, Tensor, Unwritable, constant

_FLOAT = "float16 float32"
_REAL = f"{_FLOAT} float64"
_NUMBER = f"{_REAL} int32 int64"
_COUNTER = f"{_NUMBER} uint32 uint64"
_BYTES = "int8 uint8"

# What ONNX Runtime's CPU provider computes in all of its versions from 1.23 on, and all versions of the operators
# from 13 on; it brings numbers of 16 bits to 32 by itself.
_KERNELS = {
    _FLOAT: """
        Acos Acosh Asin Asinh Atan Atanh AveragePool Conv ConvTranspose Cosh Elu Erf GlobalAveragePool GridSample
        InstanceNormalization LeakyRelu MaxRoiPool PRelu RoiAlign Selu Sinh Softplus Tan
    """,
    _REAL: """
        BatchNormalization Ceil Cos Exp Floor Gemm LayerNormalization Log LogSoftmax Reciprocal Relu Round Sigmoid Sin
        Softmax Sqrt Tanh
    """,
    _NUMBER: "CumSum Einsum Pow ReduceMean ReduceProd ReduceSum",
    _COUNTER: "Add Div MatMul Mul Sub",
    f"{_NUMBER} int8": "Neg",
    f"{_NUMBER} {_BYTES}": "ArgMax ArgMin ReduceMax ReduceMin TopK",
    f"{_COUNTER} {_BYTES}": "Clip Max Min",
    f"{_COUNTER} {_BYTES} bool": "Pad",
    f"{_NUMBER} {_BYTES} uint32": "Where",
    "uint8 uint32 uint64": "BitShift",
    f"{_NUMBER} bool": "Trilu",
    f"{_NUMBER} {_BYTES} bool": "Equal",
    f"{_NUMBER} {_BYTES} int16 uint16": "Less LessOrEqual Greater GreaterOrEqual",
    f"{_REAL} {_BYTES}": "DepthToSpace MaxPool",
    f"{_FLOAT} int32 {_BYTES}": "Resize",
}
_DTYPES = {kind: dtypes.split() for dtypes, kinds in _KERNELS.items() for kind in kinds.split()}

# By how much they hold; a dtype is computed in the first behind it that there is a kernel for.
_WIDER = {
    "bool": ("uint8", "int32"),
    "int8": ("int32", "float32"),
    "uint8": ("int32", "float32"),
    "int16": ("int32", "float32"),
    "uint16": ("int32", "uint32", "float32"),
    "int32": ("int64", "float64", "float32"),
    "uint32": ("int64", "float64"),
    "int64": ("float64", "float32"),
    "uint64": ("int64", "float64"),
    "float64": ("float32",),
    "bfloat16": ("float32",),
}


def widen(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes with casts around dtypes without kernels."""
    return [part for node in nodes for part in _with_casts(node)]


def _with_casts(node: Node) -> Sequence[Node]:
    source = node.inputs[0] if node.inputs else None
    if node.kind == "Where":
        source = node.inputs[1]
    if source is None or node.kind not in _DTYPES or source.dtype in _DTYPES[node.kind]:
        return [node]
    dtype = next((candidate for candidate in _WIDER.get(source.dtype, ()) if candidate in _DTYPES[node.kind]), "")
    if not dtype:
        raise Unwritable(f"{node.kind} of {source.dtype}")
    inputs, outputs = _dtype_tests(node.kind)
    wide_sources: dict[Tensor, Tensor] = {}
    for position, tensor in enumerate(node.inputs):
        if tensor is not None and inputs(position) and tensor not in wide_sources:
            wide_sources[tensor] = (
                Tensor(tensor.shape, dtype) if tensor.values is None else constant(tensor.values.astype(dtype))
            )
    wide_results = {
        tensor: Tensor(tensor.shape, dtype) for position, tensor in enumerate(node.outputs) if outputs(position)
    }
    wide_inputs = [tensor if tensor is None else wide_sources.get(tensor, tensor) for tensor in node.inputs]
    wide_node = Node(
        node.kind,
        wide_inputs,
        [wide_results.get(tensor, tensor) for tensor in node.outputs],
        node.attributes,
        node.axes,
    )
    casts = [_cast(tensor, wide) for tensor, wide in wide_sources.items() if wide.values is None]
    return [*casts, wide_node, *(_cast(wide, tensor) for tensor, wide in wide_results.items())]


def _cast(source: Tensor, target: Tensor) -> Node:
    return Node("Cast", [source], [target], {"to": target.dtype})


@functools.cache
def _dtype_tests(kind: str) -> tuple[Any, Any]:
    """Return predicates: inputs and outputs of the operator's main dtype."""
    from onnx import defs

    schema = defs.get_schema(kind, 22)
    parameter = schema.inputs[1 if kind == "Where" else 0].type_str

    def are(formals: Sequence[Any]) -> Any:
        return lambda position: formals[min(position, len(formals) - 1)].type_str == parameter

    return are(schema.inputs), are(schema.outputs)
