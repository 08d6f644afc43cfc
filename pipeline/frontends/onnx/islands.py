"""Islands: groups of operators for ONNX Runtime, one node each."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from onnx import helper

from pipeline.frontends import grouping
from pipeline.frontends.onnx.guards import add_guards
from pipeline.frontends.onnx.node_order import links
from pipeline.frontends.onnx.simplification.tensors import is_external, static_shape, tensor_types, tensors_read
from pipeline.model.imported_model import Island

DOMAIN = "soc_pipeline"
KIND = "Island"
"""Domain and kind of an island's node; its attribute ``model`` holds the operators."""


def replace_by_islands(model: Any, reasons: Mapping[int, str]) -> list[Island]:
    """Replace nodes by islands, in place, and return these.

    Operators connected by tensors whose shape depends on values belong to one island, since frames have tensors of
    fixed shapes only. The model has the types of its tensors; `reasons` are by number of the nodes that have to be in
    an island.
    """
    graph = model.graph
    types = tensor_types(graph)
    writer = _IslandWriter(model, types)
    islands = []

    def write(group: list[int], results: set[str]) -> Any:
        members = [graph.node[number] for number in group]
        island = writer.write(members, results)
        kinds = tuple(f"{node.op_type} ({node.name or _result(node)})" for node in members)
        reason = next(reasons[number] for number in group if number in reasons)
        islands.append(Island(_result(island), kinds, reason))
        return island

    is_open_tensor = functools.partial(is_open, types)
    nodes = grouping.replace_groups(list(graph.node), links, seeds=reasons, is_open=is_open_tensor, write=write)
    del graph.node[:]
    graph.node.extend(nodes)
    return islands


def _result(node: Any) -> str:
    return next((name for name in node.output if name), "")


def is_open(types: Mapping[str, Any], name: str) -> bool:
    """Return True for tensors of unknown shape, and other values."""
    return bool(name) and static_shape(types.get(name)) is None


class _IslandWriter:
    """Writer of node groups as models of their own."""

    def __init__(self, model: Any, types: Mapping[str, Any]) -> None:
        graph = model.graph
        self._graph, self._types, self._opsets = graph, types, list(model.opset_import)
        self._constants = {tensor.name: tensor for tensor in graph.initializer if not is_external(tensor)}
        self._constant_nodes = {node.output[0]: node for node in graph.node if node.op_type == "Constant"}
        self._outputs = {value.name for value in graph.output}

    def write(self, nodes: Sequence[Any], read_elsewhere: Collection[str]) -> Any:
        """Return the node of an island with the results read outside."""
        results = {name for node in nodes for name in node.output if name}
        read = dict.fromkeys(name for node in nodes for name in tensors_read(node) if name not in results)
        inputs = [name for name in read if name not in self._constants and name not in self._constant_nodes]
        outputs = [name for node in nodes for name in node.output if name in read_elsewhere or name in self._outputs]
        part = helper.make_graph(
            [*(self._constant_nodes[name] for name in read if name in self._constant_nodes), *nodes],
            "island",
            [self._value_info(name) for name in inputs],
            [helper.make_value_info(name, self._types[name]) for name in outputs if name in self._types],
            [self._constants[name] for name in read if name in self._constants],
        )
        add_guards(part)
        # ONNX Runtime may be older than the package that wrote the model, whose version of the file format it refuses.
        version = helper.find_min_ir_version_for(self._opsets, ignore_unknown=True)
        island = helper.make_model(part, opset_imports=self._opsets, ir_version=version)
        name = nodes[0].name or _result(nodes[0])
        return helper.make_node(KIND, inputs, outputs, name=name, domain=DOMAIN, model=island.SerializeToString())

    def _value_info(self, name: str) -> Any:
        if name in self._types:
            return helper.make_value_info(name, self._types[name])
        # A constant that is so large that it stays in its file comes as an input.
        tensor = next(tensor for tensor in self._graph.initializer if tensor.name == name)
        return helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)
