"""A quantised ONNX model without its quantisation: the numbers that its weights stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

_SUMS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "BatchNormalization")
_PAIR = ("QuantizeLinear", "DequantizeLinear")


def is_quantized(model: Any) -> bool:
    """Whether a model quantises any tensor."""
    return any(node.op_type in _PAIR for node in model.graph.node)


def restored(model: Any) -> Any:
    """Return a model in which nothing is quantised any more."""
    from onnx import numpy_helper

    found = type(model)()
    found.CopyFrom(model)
    graph = found.graph
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    made = {node.output[0]: node for node in graph.node}
    instead: dict[str, str] = {}
    rectified: list[str] = []
    for node in graph.node:
        if node.op_type != "DequantizeLinear":
            continue
        source = made.get(node.input[0])
        if source is not None and source.op_type == "QuantizeLinear":
            instead[node.output[0]] = source.input[0]
            if _rectifies(source, made, constants):
                rectified.append(source.input[0])
        elif node.input[0] in constants:
            values = dequantized(node, constants)
            graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
    left = [node for node in graph.node if node.op_type not in _PAIR]
    left = _with_rectifiers(left, dict.fromkeys(rectified))
    for node in left:
        for position, name in enumerate(node.input):
            node.input[position] = _last(name, instead)
    _keep_outputs(graph, left, instead)
    del graph.node[:]
    graph.node.extend(left)
    _drop_unused(graph)
    return found


def _rectifies(node: Any, made: Mapping[str, Any], constants: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Whether quantising a sum is also what makes its negative values 0: ONNX Runtime then drops the rectifier."""
    source, zero = made.get(node.input[0]), constants.get(node.input[-1])
    if source is None or source.op_type not in _SUMS or zero is None or zero.dtype.kind not in "iu":
        return False
    return bool((zero == np.iinfo(zero.dtype).min).all())


def _with_rectifiers(nodes: list[Any], names: Iterable[str]) -> list[Any]:
    """Return nodes with a rectifier behind each that makes one of the tensors."""
    from onnx import helper

    wanted, found = set(names), []
    for node in nodes:
        found.append(node)
        for position, name in enumerate(node.output):
            if name in wanted:
                node.output[position] = f"{name}:sums"
                found.append(helper.make_node("Relu", [f"{name}:sums"], [name], name=f"{name}:rectified"))
    return found


def dequantized(node: Any, constants: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
    """Return what a DequantizeLinear makes of constants."""
    values, scale = constants[node.input[0]].astype(np.float32), constants[node.input[1]]
    zero = constants[node.input[2]].astype(np.float32) if len(node.input) > 2 else np.float32(0)
    shape = [1] * values.ndim
    if scale.size > 1:
        shape[axis_of(node)] = -1
        scale, zero = scale.reshape(shape), np.reshape(zero, shape)
    made: npt.NDArray[np.float32] = ((values - zero) * scale).astype(np.float32)
    return made


def axis_of(node: Any) -> int:
    """Return the axis along which a node's scales differ."""
    return next((int(each.i) for each in node.attribute if each.name == "axis"), 1)


def _last(name: str, instead: dict[str, str]) -> str:
    while name in instead:
        name = instead[name]
    return name


def _keep_outputs(graph: Any, nodes: list[Any], instead: dict[str, str]) -> None:
    """Let whoever makes an output call it by its name."""
    names = {_last(each.name, instead): each.name for each in graph.output if each.name in instead}
    for node in nodes:
        for values in (node.input, node.output):
            for position, name in enumerate(values):
                values[position] = names.get(name, name)


def _drop_unused(graph: Any) -> None:
    used = {name for node in graph.node for name in node.input}
    kept = [each for each in graph.initializer if each.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
