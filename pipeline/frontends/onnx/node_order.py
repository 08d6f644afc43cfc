"""Order of a graph's nodes by makers and readers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.frontends import grouping
from pipeline.frontends.onnx.simplification.tensors import tensors_read


def links(nodes: Sequence[Any]) -> list[grouping.Links]:
    """Return the nodes' inputs and outputs."""
    return [grouping.Links(tuple(tensors_read(node)), tuple(name for name in node.output if name)) for node in nodes]


def sort_topologically(nodes: Sequence[Any]) -> Iterator[Any]:
    """Yield nodes in topological order, stable."""
    for number in grouping.sort_topologically(links(nodes)):
        yield nodes[number]
