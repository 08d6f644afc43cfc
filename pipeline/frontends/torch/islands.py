"""Islands: groups of an exported program's nodes for PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from pipeline.frontends import grouping
from pipeline.frontends.torch import names, signature
from pipeline.frontends.torch.calls import is_promise


class NodeIsland(NamedTuple):
    """Nodes of one island operator."""

    nodes: tuple[Any, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    """Nodes of its own in order, nodes whose values it reads, and nodes of its own that others read."""
    reason: str
    """Reason that the compiler does not get them."""

    def describe_operators(self) -> tuple[str, ...]:
        """Return the operators with their nodes."""
        nodes = [node for node in self.nodes if getattr(node.target, "__name__", "") != "getitem"]
        kinds = [getattr(node.target, "__name__", "constant").removesuffix(".default") for node in nodes]
        return tuple(f"{kind} ({names.of_node(node)})" for kind, node in zip(kinds, nodes, strict=True))


def constant_island(output: Any, model_input: Any) -> NodeIsland:
    """Return an island for a constant output.

    A stage makes its outputs of its inputs.
    """
    return NodeIsland((output,), (model_input, output), (output,), "it depends on no input")


def is_open(node: Any, symbols: Mapping[Any, int]) -> bool:
    """Check for a value confined to islands: no fixed known tensor."""
    value = node.meta.get("val")
    if signature.is_number(node):
        return signature.fixed_number(value, symbols) is None
    if not isinstance(value, torch.Tensor):
        return value is not None or not is_promise(node)
    extents = [signature.fixed_number(extent, symbols) for extent in value.shape]
    return not signature.is_dtype(value.dtype) or value.layout != torch.strided or None in extents


def units(
    nodes: Sequence[Any], reasons: Mapping[Any, str], values: Mapping[Any, Any], symbols: Mapping[Any, int]
) -> list[Any]:
    """Return nodes and islands in topological order.

    The nodes to compute are in order; `reasons` are of those that have to be in islands, `values` exist already.
    """
    numbers = {node: number for number, node in enumerate(nodes)}

    def links(part: Any) -> grouping.Links:
        members = part.nodes if isinstance(part, NodeIsland) else (part,)
        read = dict.fromkeys(operand for node in members for operand in node.all_input_nodes if operand not in members)
        tensors = [operand for operand in read if operand.op == "call_function" and operand not in values]
        return grouping.Links(tuple(operand for operand in tensors if not _is_fixed(operand, symbols)), members)

    return grouping.replace_groups(
        nodes,
        links,
        seeds=[numbers[node] for node in reasons],
        is_open=functools.partial(is_open, symbols=symbols),
        write=lambda group, _: _island([nodes[number] for number in group], reasons, symbols, numbers),
    )


def _is_fixed(node: Any, symbols: Mapping[Any, int]) -> bool:
    return signature.is_number(node) and signature.fixed_number(node.meta["val"], symbols) is not None


def _island(
    nodes: Sequence[Any], reasons: Mapping[Any, str], symbols: Mapping[Any, int], computed: Collection[Any]
) -> NodeIsland:
    members = set(nodes)
    read = dict.fromkeys(
        operand
        for node in nodes
        for operand in node.all_input_nodes
        if operand not in members and operand.op != "get_attr" and not _is_fixed(operand, symbols)
    )
    # Others may read it that are not computed themselves, such as promises on extents.
    outputs = [
        node
        for node in nodes
        if any(user.op == "output" or (user in computed and user not in members) for user in node.users)
    ]
    reason = next(reasons[node] for node in nodes if node in reasons)
    return NodeIsland(tuple(nodes), tuple(read), tuple(outputs), reason)
