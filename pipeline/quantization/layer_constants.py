"""Layer constants: weights and biases for ONNX Runtime's quantiser."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.quantization.floats import drop_unused

_BIASED = ("Conv", "ConvTranspose", "Gemm")


def separate_constants(model: Any) -> None:
    """Give layers their own biases, and weights one scale axis.

    The quantiser copies shared biases under names of its own, and scales shared weights along the last reader's axis.
    It takes no bias that is broadcast, and drops the ``beta`` of a Gemm.
    """
    from onnx import numpy_helper

    graph = model.graph
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    # The uses of a constant by name, and the name of the copy for each.
    copies: dict[str, dict[str, str]] = defaultdict(dict)
    for output in graph.output:
        copies[output.name][""] = output.name
    for number, node in enumerate(graph.node):
        for position, name in enumerate(node.input):
            if name not in arrays:
                continue
            use, values = _use(node, position, number), arrays[name]
            if position == 2 and node.op_type in _BIASED:
                values = _bias(node, values, arrays)
            if use not in copies[name]:
                copies[name][use] = name if not copies[name] and values is arrays[name] else _free_name(name, arrays)
                if copies[name][use] != name:
                    arrays[copies[name][use]] = values
                    graph.initializer.append(numpy_helper.from_array(values, copies[name][use]))
            node.input[position] = copies[name][use]
    drop_unused(graph)


def _use(node: Any, position: int, number: int) -> str:
    """Name the use of a constant. Equal uses share one copy."""
    if position == 2 and node.op_type in _BIASED:
        return f"bias {number}"
    axes = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0 if _attribute(node, "transB", 0) else 1, "MatMul": 1}
    return f"axis {axes[node.op_type]}" if position == 1 and node.op_type in axes else ""


def _bias(node: Any, values: npt.NDArray[Any], arrays: dict[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return a bias per channel, for a Gemm with broadcast or scale."""
    weights = arrays.get(node.input[1])
    if node.op_type != "Gemm" or weights is None or values.size not in (1, values.shape[-1] if values.ndim else 1):
        return values
    channels = weights.shape[0 if _attribute(node, "transB", 0) else 1]
    beta = _attribute(node, "beta", 1.0)
    if values.shape == (channels,) and beta == 1:
        return values
    for attribute in node.attribute:
        if attribute.name == "beta":
            attribute.f = 1.0
    row: npt.NDArray[Any] = np.broadcast_to((values * beta).astype(values.dtype).reshape(-1), (channels,)).copy()
    return row


def _attribute(node: Any, name: str, default: float) -> float:
    values = (
        attribute.f if attribute.type == attribute.FLOAT else attribute.i
        for attribute in node.attribute
        if attribute.name == name
    )
    return next(values, default)


def _free_name(name: str, arrays: dict[str, Any]) -> str:
    return next(free for number in count() if (free := f"{name}:{number}") not in arrays)
