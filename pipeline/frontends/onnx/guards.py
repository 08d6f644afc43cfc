"""Guards: nodes failing where ONNX Runtime would end the process."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

_FRAME_LENGTH = 3
"""Position of the operand of ``STFT``, by which ONNX Runtime divides."""

_PREFIX = "soc_pipeline:"
"""Beginning of the names of guards' tensors."""


def add_guards(graph: Any) -> None:
    """Guard a graph's nodes, in place, subgraphs' too."""
    nodes = []
    for node in map(_copy, graph.node):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                add_guards(attribute.g)
        # What an island brings along is guarded already.
        if node.op_type == "STFT" and any(_PREFIX not in name for name in node.input[_FRAME_LENGTH:] if name):
            nodes += _guard_length(node)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _guard_length(node: Any) -> list[Any]:
    """Return nodes before ``STFT``: a length below 1 is an index out of bounds."""
    names = (f"{_PREFIX}{node.output[0]}:{part}" for part in ("one", "vector", "least", "less", "index", "item"))
    one, vector, least, less, index, item = names
    source, node.input[_FRAME_LENGTH] = node.input[_FRAME_LENGTH], f"{item}:scalar"
    # ONNX Runtime's error has the name of the node that fails.
    refusal = f"STFT of {node.output[0]} needs a frame_length of at least 1"
    return [
        helper.make_node("Constant", [], [one], value=numpy_helper.from_array(np.ones(1, np.int64))),
        helper.make_node("Reshape", [source, one], [vector]),
        helper.make_node("CastLike", [one, vector], [least]),
        helper.make_node("Less", [vector, least], [less]),
        helper.make_node("Cast", [less], [index], to=TensorProto.INT64),
        helper.make_node("Gather", [vector, index], [item], name=refusal),
        helper.make_node("Squeeze", [item], [node.input[_FRAME_LENGTH]]),
    ]


def _copy(node: Any) -> Any:
    # A node of the list's would be emptied with it.
    result = type(node)()
    result.CopyFrom(node)
    return result
