"""One table: an operator of Relax -> what writes its form in ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.split.export.relax_onnx import (
    convolutions,
    elementwise,
    movement,
    normalization,
    pooling,
    products,
    quantization,
    reductions,
)
from pipeline.split.export.relax_onnx.graph_writer import GraphWriter, Results
from pipeline.split.export.relax_onnx.tensors import Unwritable

Writer = Callable[[GraphWriter, Any], Results]
"""Writes the nodes of a call; raises `Unwritable` for what has no form in ONNX."""

WRITERS: dict[str, Writer] = {
    name: writer
    for family in (
        convolutions, elementwise, movement, normalization, pooling, products, quantization, reductions,
    )
    for name, writer in family.WRITERS.items()
}  # fmt: skip
"""By the operator's name without the namespace of Relax."""


def write_call(graph: GraphWriter, call: Any) -> Results:
    """Write one call of an operator."""
    writer = WRITERS.get(str(call.op.name).removeprefix("relax."))
    if writer is None:
        raise Unwritable
    return writer(graph, call)
