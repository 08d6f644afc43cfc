"""Nodes and tensors -> a model of the onnx package, in its lowest version."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pipeline.errors import BuildError
from pipeline.export.relax_onnx.islands import model_opset, raise_opset, rename
from pipeline.export.relax_onnx.runtime_dtypes import widen
from pipeline.export.relax_onnx.tensors import Node, Tensor, Unwritable, constant

_LARGE = 1 << 20
"""Size in bytes of an initializer from which on the checker need not see its values."""


LOWEST, HIGHEST = 13, 22
"""Lowest and highest written version of ONNX's operators: vendors' tools want old ones."""


def serialize(
    name: str, nodes: Iterable[Node], inputs: Sequence[Tensor], outputs: Sequence[Tensor], opset: int | None
) -> Any:
    """Return the model of the nodes behind some outputs."""
    live_nodes = widen(_live(nodes, outputs))
    needs = {node: lowest_opset(node) for node in live_nodes}
    version = max(needs.values(), default=LOWEST) if opset is None else opset
    if newer := sorted({f"{node.kind} ({needs[node]})" for node in live_nodes if needs[node] > version}):
        raise BuildError(f"cannot be written as ONNX of opset {version}: {', '.join(newer)} came later")
    return _Serializer(version, {tensor.name for tensor in (*inputs, *outputs)}).model(
        name, live_nodes, inputs, outputs
    )


def _live(nodes: Iterable[Node], outputs: Iterable[Tensor]) -> list[Node]:
    read = set(outputs)
    live_nodes = []
    for node in reversed(list(nodes)):
        if not read.isdisjoint(node.outputs):
            read.update(tensor for tensor in node.inputs if tensor is not None)
            live_nodes.append(node)
    return live_nodes[::-1]


_LATER_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Names of GridSample's modes from the version on with a third dimension."""


class _Serializer:
    """Names of tensors, and protos of them and of nodes."""

    def __init__(self, opset: int, names: set[str]) -> None:
        self._opset, self._names = opset, set(names)
        self._tensor_names: dict[Tensor, str] = {}
        self._constants: dict[Any, tuple[str, np.ndarray]] = {}
        self._island_constants: list[Any] = []
        self._sparse_initializers: list[Any] = []
        # Of islands.
        self._functions: dict[tuple[str, str], Any] = {}
        self._domains, self._ir_version = {"": opset}, 0

    def model(self, name: str, nodes: Sequence[Node], inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Any:
        from onnx import helper

        self._tensor_names = {tensor: tensor.name for tensor in (*inputs, *outputs)}
        tensors = [output for node in nodes for output in node.outputs if output not in self._tensor_names]
        # Names of the model's own first, so that what is made up differs from them.
        for tensor in sorted(tensors, key=lambda output: not output.name):
            self._tensor_names[tensor] = self._unique(tensor.name or "t")
        protos = [proto for node in nodes for proto in self._protos(node)]
        graph = helper.make_graph(
            protos, name, [self._value_info(tensor) for tensor in inputs],
            [self._value_info(tensor) for tensor in outputs],
            value_info=[self._value_info(tensor) for tensor in tensors],
            sparse_initializer=self._sparse_initializers,
        )  # fmt: skip
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._domains.items()]
        version = max(helper.find_min_ir_version_for(opsets, ignore_unknown=True), self._ir_version)
        model = helper.make_model(
            graph, producer_name="soc-pipeline", opset_imports=opsets, ir_version=version,
            functions=list(self._functions.values()),
        )  # fmt: skip
        self._add_initializers(model.graph.initializer)
        _check(model)
        return model

    def _add_initializers(self, initializers: Any) -> None:
        """Copy constants into the model one by one, to save memory. The constants may fill half of the memory."""
        from onnx import numpy_helper

        for name, values in self._constants.values():
            initializers.append(numpy_helper.from_array(values, name))
        initializers.extend(self._island_constants)

    def _protos(self, node: Node) -> Iterable[Any]:
        return [self._node(node)] if node.model is None else self._island(node)

    def _island(self, node: Node) -> Iterable[Any]:
        """Return an island's nodes, and keep its model's other parts."""
        from onnx import helper

        model = raise_opset(node.model, self._opset)
        names = {value.name: self._name(tensor) for value, tensor in zip(model.graph.input, node.inputs, strict=True)}
        copies = []
        for value, tensor in zip(model.graph.output, node.outputs, strict=True):
            # One that nobody reads has no name yet.
            result = self._tensor_names.get(tensor) or self._unique("t")
            if names.setdefault(value.name, result) != result:
                copies.append(helper.make_node("Identity", [names[value.name]], [result]))
        rename(model.graph, names, self._unique)
        self._island_constants.extend(model.graph.initializer)
        self._sparse_initializers.extend(model.graph.sparse_initializer)
        self._functions.update({(function.domain, function.name): function for function in model.functions})
        self._ir_version = max(self._ir_version, model.ir_version)
        for opset in model.opset_import:
            domain = "" if opset.domain == "ai.onnx" else opset.domain
            self._domains[domain] = max(self._domains.get(domain, 0), opset.version)
        return [*model.graph.node, *copies]

    def _node(self, node: Node) -> Any:
        from onnx import helper

        attributes = {key: value for key, value in node.attributes.items() if value is not None}
        if "to" in attributes:
            attributes["to"] = element_type(attributes["to"])
        inputs = list(node.inputs)
        if node.kind == "GridSample" and self._opset >= 20:
            attributes["mode"] = _LATER_MODES.get(attributes["mode"], attributes["mode"])
        if node.axes is not None:
            if self._opset >= 18 or node.kind == "ReduceSum":
                inputs.append(constant(node.axes, np.int64))
            else:
                attributes["axes"] = list(node.axes)
        return helper.make_node(
            node.kind,
            [self._name(tensor) for tensor in inputs],
            [self._tensor_names[tensor] for tensor in node.outputs],
            name=self._tensor_names[node.outputs[0]],
            **attributes,
        )

    def _name(self, tensor: Tensor | None) -> str:
        if tensor is None:
            return ""
        if tensor.values is None:
            return self._tensor_names[tensor]
        values = np.ascontiguousarray(tensor.values).reshape(tensor.shape)
        # One tensor for equal constants: a weight may be read by several operators.
        key = tensor.dtype, tensor.shape, values.tobytes() if values.nbytes < _LARGE else values.ctypes.data
        if key not in self._constants:
            self._constants[key] = self._unique("constant"), values
        return self._constants[key][0]

    def _unique(self, name: str) -> str:
        number, candidate = 0, name
        while candidate in self._names:
            number += 1
            candidate = f"{name}_{number}"
        self._names.add(candidate)
        return candidate

    def _value_info(self, tensor: Tensor) -> Any:
        from onnx import helper

        name = self._tensor_names[tensor]
        return helper.make_tensor_value_info(name, element_type(tensor.dtype), tensor.shape)


def element_type(dtype: str) -> int:
    """Return ONNX's number of a dtype."""
    from onnx import TensorProto

    name = ONNX_NAMES.get(dtype, dtype).upper()
    if not hasattr(TensorProto, name):
        raise Unwritable(f"tensors of {dtype}")
    return int(getattr(TensorProto, name))


def _check(model: Any) -> None:
    """Check a model against its operators' definitions. Large initializers count as inputs, for their bytes."""
    import onnx

    graph = onnx.GraphProto()
    graph.CopyFrom(onnx.GraphProto(
        name=model.graph.name, node=model.graph.node, input=model.graph.input, output=model.graph.output,
        value_info=model.graph.value_info,
    ))  # fmt: skip
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) < _LARGE:
            graph.initializer.add().CopyFrom(tensor)
        else:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    light_model = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    onnx.checker.check_model(light_model, full_check=True)


def lowest_opset(node: Node) -> int:
    """Return a node's lowest valid version; an island has its model's."""
    if node.model is not None:
        return max(model_opset(node.model), LOWEST)
    inputs, outputs = (
        tuple(None if tensor is None else tensor.dtype for tensor in tensors) for tensors in (node.inputs, node.outputs)
    )
    attributes = tuple(sorted(name for name, value in node.attributes.items() if value is not None))
    version = _lowest_opset(node.kind, attributes, inputs, outputs)
    # In its first version there is no third dimension.
    return max(version, 20) if node.kind == "GridSample" and len(node.outputs[0].shape) > 4 else version


@functools.cache
def _lowest_opset(kind: str, attributes: Sequence[str], inputs: Sequence[str | None], outputs: Sequence[str]) -> int:
    from onnx import defs

    for version in range(LOWEST, HIGHEST + 1):
        try:
            schema = defs.get_schema(kind, version)
        except defs.SchemaError:
            continue
        are_dtypes = _are_of(schema, schema.inputs, inputs) and _are_of(schema, schema.outputs, outputs)
        if set(attributes) <= set(schema.attributes) and are_dtypes:
            return version
    raise Unwritable(f"{kind} of {', '.join(name for name in (*inputs, *outputs) if name)}")


ONNX_NAMES = {
    "float32": "float", "float64": "double", "float8_e4m3fn": "float8e4m3fn", "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2", "float8_e5m2fnuz": "float8e5m2fnuz", "float4_e2m1fn": "float4e2m1",
}  # fmt: skip
"""ONNX's names of dtypes, where they differ."""


def _are_of(schema: Any, formals: Sequence[Any], dtypes: Sequence[str | None]) -> bool:
    """Check an operator's inputs or outputs for dtypes."""
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    for position, dtype in enumerate(dtypes):
        formal = formals[min(position, len(formals) - 1)]
        types = allowed.get(formal.type_str, [formal.type_str])
        if dtype is not None and f"tensor({ONNX_NAMES.get(dtype, dtype)})" not in types:
            return False
    return True
