"""Softmax and norms."""

from __future__ import annotations

import functools
from typing import Any

from pipeline.split.export.relax_onnx.graph_writer import GraphWriter
from pipeline.split.export.relax_onnx.operands import axes
from pipeline.split.export.relax_onnx.tensors import Tensor


def _softmax(kind: str, graph: GraphWriter, call: Any) -> Tensor:
    source = graph.tensor(call.args[0])
    return graph.node(kind, [source], axis=axes(call.attrs.axis, len(source.shape))[0])


WRITERS = {
    "nn.softmax": functools.partial(_softmax, "Softmax"),
    "nn.log_softmax": functools.partial(_softmax, "LogSoftmax"),
}
