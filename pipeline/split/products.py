"""Products: a graph's convolutions and matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm.ir import GenericConst

from pipeline.model.operators import operator_kind
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator


def products(graph: Graph) -> Iterator[Operator]:
    """Yield the convolutions and matrix products, in order."""
    for operator in graph.operators:
        yield from (call for call in operator.calls if operator_kind(call.kind).family in {"convolution", "matmul"})


def end_products(graph: Graph) -> list[str]:
    """Return tensors of products that read no other product, and of those that no other one reads."""
    kinds = {call.outputs[0] for call in products(graph)}
    # The products behind each tensor, seen through other operators.
    sources: dict[str, frozenset[str]] = {}
    first, read = set[str](), set[str]()
    for operator in graph.operators:
        for call in operator.calls:
            behind = frozenset().union(*(sources.get(name, ()) for name in call.inputs))
            if call.outputs[0] in kinds:
                read |= behind
                first |= set() if behind else {call.outputs[0]}
                behind = frozenset(call.outputs[:1])
            sources.update(dict.fromkeys(call.outputs, behind))
    return [call.outputs[0] for call in products(graph) if call.outputs[0] in first or call.outputs[0] not in read]


def constant_weights(call: Operator) -> Any:
    """Return a product's constant weights; None where both operands are data or weights have more axes than two."""
    value = call.lines[0].value if call.lines else None
    weights = value.args[1] if value is not None and len(value.args) > 1 else None
    if not isinstance(weights, GenericConst) or str(call.kind) not in {"conv2d", "conv1d", "matmul"}:
        return None
    return weights.value.numpy() if call.kind != "matmul" or weights.ty.ndim == 2 else None
