"""Order of a graph's nodes by makers and readers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.frontends import grouping
from pipeline.frontends.onnx.simplification.tensors import tensors_read


def links(node: Any) -> grouping.Links:
    """Return the nodes' inputs and outputs."""
    return grouping.Links(tuple(tensors_read(node)), tuple(name for name in node.output if name))


def sort_topologically(nodes: Sequence[Any]) -> Iterator[Any]:
    """Yield nodes in topological order, stable."""
    for number in grouping.sort_topologically(list(map(links, nodes))):
        yield nodes[number]
