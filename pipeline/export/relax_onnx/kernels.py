"""Kernels with the name of their operator."""

from __future__ import annotations

import json
from typing import Any

from pipeline.export.relax_onnx.graph_writer import GraphWriter, Results
from pipeline.export.relax_onnx.recurrent import write_recurrent
from pipeline.export.relax_onnx.tensors import Unwritable
from pipeline.model.passes.bindings import FORM


def write_kernel(graph: GraphWriter, call: Any, variable: Any) -> Results:
    """Write the operator of a kernel."""
    attributes = graph.module[variable].attrs
    text = attributes[FORM] if attributes is not None and FORM in attributes else None
    if text is None:
        raise Unwritable
    form = json.loads(str(text))
    if form["kind"] == "Identity":
        # Of its first operand; another one is there for it to be no constant.
        return graph.tensor(call.args[1].fields[0])
    if form["kind"] not in ("RNN", "LSTM", "GRU"):
        raise Unwritable
    return write_recurrent(graph, call, form)
