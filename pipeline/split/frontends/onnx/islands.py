"""Islands: operators that ONNX Runtime computes, each group of them one operator of the model that is imported."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from onnx import helper

from pipeline.split.frontends import grouping
from pipeline.split.frontends.onnx.node_order import links, sort_topologically
from pipeline.split.frontends.onnx.simplification import is_external, static_shape, tensor_types, tensors_read
from pipeline.split.model import Island

DOMAIN = "soc_pipeline"
KIND = "Island"
"""Domain and kind of the node that stands for an island; its attribute ``model`` holds that."""


def replace_by_islands(model: Any, reasons: Mapping[int, str]) -> list[Island]:
    """Replace nodes by islands, in place, and return these.

    What is connected by tensors whose shape depends on values belongs to one island, since frames have tensors of fixed
    shapes only.

    Parameters
    ----------
    model : onnx.ModelProto
        With the types of its tensors.
    reasons : mapping of int to str
        From the numbers of the nodes that have to be in one to the reason.
    """
    graph = model.graph
    types = tensor_types(graph)
    node_links = links(graph.node)
    open_tensor = functools.partial(is_open, types)
    members = grouping.grow(node_links, reasons, open_tensor)
    groups = grouping.join(node_links, members, open_tensor)
    islands, replacements = [], {}
    for group in groups:
        nodes = [graph.node[number] for number in group]
        reason = next(reasons[number] for number in group if number in reasons)
        replacements[group[0]] = island = _island(model, nodes, types)
        kinds = tuple(f"{node.op_type} ({node.name or _result(node)})" for node in nodes)
        islands.append(Island(_result(island), kinds, reason))
    island_members = {number for group in groups for number in group}
    nodes = [
        replacements.get(n, node) for n, node in enumerate(graph.node) if n in replacements or n not in island_members
    ]
    del graph.node[:]
    graph.node.extend(sort_topologically(nodes))
    return islands


def _result(node: Any) -> str:
    return next((name for name in node.output if name), "")


def is_open(types: Mapping[str, Any], name: str) -> bool:
    """Return True if a tensor has no fixed shape that is known, or is none."""
    return bool(name) and static_shape(types.get(name)) is None


def _island(model: Any, nodes: Sequence[Any], types: Mapping[str, Any]) -> Any:
    """Return the node that stands for others, with their model."""
    graph = model.graph
    results = {name for node in nodes for name in node.output if name}
    read = dict.fromkeys(name for node in nodes for name in tensors_read(node) if name not in results)
    constants = {tensor.name: tensor for tensor in graph.initializer if not is_external(tensor)}
    constant_nodes = {node.output[0]: node for node in graph.node if node.op_type == "Constant"}
    inputs = [name for name in read if name not in constants and name not in constant_nodes]
    island_nodes = {id(node) for node in nodes}
    read_elsewhere = {name for node in graph.node if id(node) not in island_nodes for name in tensors_read(node)}
    read_elsewhere |= {value.name for value in graph.output}
    outputs = [name for node in nodes for name in node.output if name in read_elsewhere]
    part = helper.make_graph(
        [*(constant_nodes[name] for name in read if name in constant_nodes), *nodes],
        "island",
        [_value_info(name, types, graph) for name in inputs],
        [helper.make_value_info(name, types[name]) for name in outputs if name in types],
        [constants[name] for name in read if name in constants],
    )
    # ONNX Runtime may be older than the package that wrote the model, whose version of the file format it refuses.
    opsets = list(model.opset_import)
    version = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
    island = helper.make_model(part, opset_imports=opsets, ir_version=version)
    return helper.make_node(
        KIND, inputs, outputs, name=nodes[0].name or _result(nodes[0]), domain=DOMAIN, model=island.SerializeToString()
    )


def _value_info(name: str, types: Mapping[str, Any], graph: Any) -> Any:
    if name in types:
        return helper.make_value_info(name, types[name])
    # A constant that is so large that it stays in its file comes as an input.
    tensor = next(tensor for tensor in graph.initializer if tensor.name == name)
    return helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)
