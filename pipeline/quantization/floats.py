"""A quantised ONNX model as floats again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.model.passes.naming import follow

_SUMS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "BatchNormalization")
_PAIR = ("QuantizeLinear", "DequantizeLinear")


def is_quantized(model: Any) -> bool:
    """Look for a quantised tensor in a model."""
    return any(node.op_type in _PAIR for node in model.graph.node)


def remove_quantization(model: Any) -> Any:
    """Return a copy of a model without quantisation."""
    result = type(model)()
    result.CopyFrom(model)
    graph = result.graph
    sources, rectified_tensors = _restore_numbers(graph)
    nodes = [node for node in graph.node if node.op_type not in _PAIR]
    # Quantising had rectified them; without it, their negative values would come back.
    nodes = _with_rectifiers(nodes, dict.fromkeys(rectified_tensors))
    for node in nodes:
        for position, name in enumerate(node.input):
            # Several pairs may follow each other.
            node.input[position] = follow(name, sources)
    _keep_outputs(graph, nodes, sources)
    del graph.node[:]
    graph.node.extend(nodes)
    drop_unused(graph)
    return result


def _restore_numbers(graph: Any) -> tuple[dict[str, str], list[str]]:
    """Add the real numbers of constant bytes; find the computed ones.

    Returns the quantised tensor by the name of the dequantised one, and the tensors quantised to bytes that stand for
    no negative number.
    """
    from onnx import numpy_helper

    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    makers = {node.output[0]: node for node in graph.node}
    sources: dict[str, str] = {}
    rectified_tensors: list[str] = []
    for node in graph.node:
        if node.op_type != "DequantizeLinear":
            continue
        source = makers.get(node.input[0])
        if source is not None and source.op_type == "QuantizeLinear":
            sources[node.output[0]] = source.input[0]
            if _rectifies(source, makers, constants):
                rectified_tensors.append(source.input[0])
        elif node.input[0] in constants:
            values = dequantize(node, constants)
            graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
    return sources, rectified_tensors


def _rectifies(node: Any, makers: Mapping[str, Any], constants: Mapping[str, npt.NDArray[Any]]) -> bool:
    """Check if quantising a sum also rectifies it. ONNX Runtime then drops the rectifier."""
    source, zero = makers.get(node.input[0]), constants.get(node.input[-1])
    if source is None or source.op_type not in _SUMS or zero is None or zero.dtype.kind not in "iu":
        return False
    # With the least byte as zero point, no byte stands for a negative number.
    return bool((zero == np.iinfo(zero.dtype).min).all())


def _with_rectifiers(nodes: list[Any], names: Iterable[str]) -> list[Any]:
    """Return nodes with rectifiers behind the tensors named."""
    from onnx import helper

    rectified_tensors, result = set(names), []
    for node in nodes:
        result.append(node)
        for position, name in enumerate(node.output):
            if name in rectified_tensors:
                node.output[position] = f"{name}:sums"
                result.append(helper.make_node("Relu", [f"{name}:sums"], [name], name=f"{name}:rectified"))
    return result


def dequantize(node: Any, constants: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
    """Return the real numbers of a DequantizeLinear on constants."""
    values, scale = constants[node.input[0]].astype(np.float32), constants[node.input[1]]
    zero = constants[node.input[2]].astype(np.float32) if len(node.input) > 2 else np.float32(0)
    shape = [1] * values.ndim
    # Along the axis of its channels, and broadcast over all others.
    if scale.size > 1:
        shape[axis_of(node)] = -1
        scale, zero = scale.reshape(shape), np.reshape(zero, shape)
    numbers: npt.NDArray[np.float32] = ((values - zero) * scale).astype(np.float32)
    return numbers


def axis_of(node: Any) -> int:
    """Return the axis of a node's scales."""
    # ONNX's default for both operators.
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == "axis"), 1)


def _keep_outputs(graph: Any, nodes: list[Any], sources: dict[str, str]) -> None:
    """Let whoever makes an output call it by its name."""
    # A tensor that was dequantised last has no node of its own any more, but users know its name.
    names = {follow(output.name, sources): output.name for output in graph.output if output.name in sources}
    for node in nodes:
        for values in (node.input, node.output):
            for position, name in enumerate(values):
                values[position] = names.get(name, name)


def drop_unused(graph: Any) -> None:
    """Drop a graph's unread constants."""
    read_names = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    constants = [constant for constant in graph.initializer if constant.name in read_names]
    del graph.initializer[:]
    graph.initializer.extend(constants)
