"""Copies of a graph's nodes under names of their own."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from .tensors import subgraphs


def count_nodes(graph: Any) -> int:
    """Return the number of nodes, subgraphs included."""
    return sum(1 + sum(map(count_nodes, subgraphs(node))) for node in graph.node)


def copy_nodes(graph: Any, names: Mapping[str, str], prefix: str) -> Generator[Any, None, dict[str, str]]:
    """Yield copied nodes; return the new tensor names by old ones.

    `names`: new names of tensors that others make, such as the graph's inputs; those not in it stay.
    """
    scope = dict(names)
    for node in graph.node:
        copy = type(node)()
        copy.CopyFrom(node)
        if node.name:
            copy.name = prefix + node.name
        copy.input[:] = [scope.get(name, name) for name in node.input]
        scope |= {name: prefix + name for name in node.output if name}
        copy.output[:] = [scope.get(name, "") for name in node.output]
        for inner_graph in subgraphs(copy):
            _rename(inner_graph, scope, prefix)
        yield copy
    return scope


def _rename(graph: Any, names: Mapping[str, str], prefix: str) -> None:
    """Rename a subgraph's tensors in place, outer ones too."""
    scope = dict(names)
    for value in (*graph.input, *graph.initializer):
        scope[value.name] = value.name = prefix + value.name
    generator = copy_nodes(graph, scope, prefix)
    nodes = []
    try:
        while True:
            nodes.append(next(generator))
    except StopIteration as stop:
        scope = stop.value
    del graph.node[:]
    graph.node.extend(nodes)
    for value in graph.output:
        value.name = scope.get(value.name, value.name)
    del graph.value_info[:]
