"""Order of a graph's nodes: who makes and who reads a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.frontends import grouping
from pipeline.frontends.onnx.simplification.tensors import tensors_read


def links(nodes: Sequence[Any]) -> list[grouping.Links]:
    """Return what each of the nodes reads and makes."""
    return [grouping.Links(tuple(tensors_read(node)), tuple(name for name in node.output if name)) for node in nodes]


def sort_topologically(nodes: Sequence[Any]) -> Iterator[Any]:
    """Yield nodes so that each comes after those whose results it reads, otherwise in their order."""
    for number in grouping.sort_topologically(links(nodes)):
        yield nodes[number]
