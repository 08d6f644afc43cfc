"""Order of a graph's nodes: who makes and who reads a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.split.frontends.onnx.simplification import tensors_read


def links(nodes: Sequence[Any]) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Return the number of the node that makes each tensor, and of those that read it."""
    makers = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    readers: dict[str, list[int]] = {}
    for number, node in enumerate(nodes):
        for name in tensors_read(node):
            readers.setdefault(name, []).append(number)
    return makers, readers


def sort_topologically(nodes: Sequence[Any]) -> Iterator[Any]:
    """Yield nodes so that each comes after those whose results it reads, otherwise in their order."""
    makers, _ = links(nodes)
    yielded_numbers: set[int] = set()
    for start in range(len(nodes)):
        stack = [start]
        while stack:
            number = stack[-1]
            makers_read = [makers[name] for name in tensors_read(nodes[number]) if name in makers]
            open_ones = [maker for maker in makers_read if maker not in yielded_numbers and maker != number]
            if number in yielded_numbers or not open_ones:
                stack.pop()
                if number not in yielded_numbers:
                    yielded_numbers.add(number)
                    yield nodes[number]
            else:
                stack += reversed(open_ones)
