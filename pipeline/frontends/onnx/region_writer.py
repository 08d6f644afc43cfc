"""ONNX models of the nodes between a model's tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from pipeline.core.packed_value import is_packed
from pipeline.core.plan.plan import TensorSpec
from pipeline.frontends.extraction import NoCounterpart, Region
from pipeline.frontends.onnx.simplification.tensors import static_shape, tensor_types, tensors_read
from pipeline.model.passes.quantized import HALF

# They return what they read, wherever the result is of the type of the operand.
_COPIES = {"Cast", "Dropout", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}

# Other names are ONNX's own in small letters.
_ELEMENT_TYPES = {"float32": "FLOAT", "float64": "DOUBLE"}


# What makes bytes of numbers, and the reverse; their third operand is the zero point.
_KINDS = {"QuantizeLinear", "DequantizeLinear"}


class RegionWriter:
    """Writes regions of a model as models.

    The model has the types of its tensors, as far as they can be inferred.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._types = tensor_types(model.graph)
        self._makers = {name: number for number, node in enumerate(model.graph.node) for name in node.output if name}
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._sparse_constants = {tensor.values.name: tensor for tensor in model.graph.sparse_initializer}
        self._inputs = {value.name for value in model.graph.input}
        self._copied = dict(self._copies())

    def write(self, region: Region) -> Any:
        """Return the model of a region, or raise `NoCounterpart`."""
        self._check_ends(region)
        nodes, constants, copies = self._collect(region)
        graph = helper.make_graph(
            [helper.make_node("Identity", [source], [target]) for target, source in copies.items()]
            + [self._model.graph.node[number] for number in sorted(nodes)],
            self._model.graph.name or "stage",
            [self._value_info(name, spec) for name, spec in region.inputs.items()],
            [self._value_info(name, spec) for name, spec in region.outputs.items()],
            [self._constants[name] for name in constants if name in self._constants],
            sparse_initializer=[self._sparse_constants[name] for name in constants if name in self._sparse_constants],
        )
        shift(graph, [name for name, spec in region.ends.items() if self._is_signed(name, spec)])
        _rename(graph, {name: spec.name for name, spec in region.ends.items()})
        opsets = list(self._model.opset_import)
        # Tools may be older than the package that wrote the model, whose version of the file format they refuse.
        version = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
        return helper.make_model(graph, opset_imports=opsets, ir_version=version, producer_name="soc-pipeline")

    def has_unknown_ends(self, region: Region) -> bool:
        """Check for inputs or outputs of unknown type."""
        return not all(_element_type(self._types.get(name)) for name in (*region.inputs, *region.outputs))

    def _check_ends(self, region: Region) -> None:
        for name, spec in region.ends.items():
            if name not in self._makers and name not in self._inputs:
                raise NoCounterpart(f"the model has no tensor {name!r}")
            value_type = self._types.get(name)
            if is_packed(spec) and not region.open_ends:
                raise NoCounterpart(f"{name!r} is no tensor of a fixed shape")
            if is_packed(spec) or value_type is None or value_type.WhichOneof("value") is None:
                continue
            number, shape = _element_type(value_type), static_shape(value_type)
            is_same = number in (0, _dtype_number(spec)) or self._is_signed(name, spec)
            if not is_same or value_type.WhichOneof("value") != "tensor_type":
                raise NoCounterpart(f"{name!r} is of another type in the model than {spec}")
            if shape not in (None, spec.shape):
                raise NoCounterpart(
                    f"{name!r} is of shape {list(shape or ())} in the model, which is not that of {spec}"
                )

    def _collect(self, region: Region) -> tuple[set[int], list[str], dict[str, str]]:
        """Return a region's nodes, constants, and substituted input names."""
        nodes, constants, copies = set[int](), list[str](), dict[str, str]()
        pending, visited = list(region.outputs), {"", *region.inputs}
        originals = {self._copied.get(name, name): name for name in region.inputs}
        while pending:
            name = pending.pop()
            if name in visited:
                continue
            visited.add(name)
            if name in self._constants or name in self._sparse_constants:
                constants.append(name)
            elif (original := originals.get(self._copied.get(name, name))) is not None:
                copies[name] = original
            elif name in self._makers:
                region.check_inside(name)
                nodes.add(self._makers[name])
                pending += tensors_read(self._model.graph.node[self._makers[name]])
            else:
                raise NoCounterpart(f"it needs {name!r} of the model, which the stage does not read")
        return nodes, constants, copies

    def _is_signed(self, name: str, spec: TensorSpec) -> bool:
        """Check if a tensor is signed in the model, unsigned in the graph.

        Bytes in the graph are larger by half their range.

        The clean-up makes activations unsigned, see `pipeline.model.passes.quantized`.
        """
        return spec.dtype == "uint8" and _element_type(self._types.get(name)) == TensorProto.INT8

    def _value_info(self, name: str, spec: TensorSpec) -> Any:
        if is_packed(spec):
            return helper.make_value_info(name, self._types[name])
        return helper.make_tensor_value_info(name, _dtype_number(spec), spec.shape)

    def _copies(self) -> Iterable[tuple[str, str]]:
        """Yield copied tensors with the first of their equals."""
        originals: dict[str, str] = {}
        for node in self._model.graph.node:
            if node.op_type not in _COPIES or node.domain not in ("", "ai.onnx") or not node.input:
                continue
            source, target = node.input[0], node.output[0]
            if node.op_type in ("Dropout", "Identity") or self._are_alike(source, target):
                originals[target] = originals.get(source, source)
                yield target, originals[target]

    def _are_alike(self, source: str, target: str) -> bool:
        """Check two tensors for one known shape and dtype."""
        types = [self._types.get(name) for name in (source, target)]
        shapes = [static_shape(value_type) for value_type in types]
        numbers = [_element_type(value_type) for value_type in types]
        return shapes[0] is not None and shapes[0] == shapes[1] and numbers[0] == numbers[1]


def _element_type(value_type: Any) -> int:
    return 0 if value_type is None else int(value_type.tensor_type.elem_type)


def _dtype_number(spec: TensorSpec) -> int:
    name = _ELEMENT_TYPES.get(spec.dtype, spec.dtype.upper())
    # Eight bits of floating point are called with one underscore less.
    names = {key.replace("_", ""): number for key, number in TensorProto.DataType.items()}
    return int(names.get(name.replace("_", ""), -1))


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """Give tensors of a graph other names, in place; `NoCounterpart` if such a name is taken."""
    names = {old: new for old, new in names.items() if old != new}
    if not names:
        return
    if taken := set(names.values()).intersection(_names(graph)) - names.keys():
        raise NoCounterpart(f"the model has another tensor {min(taken)!r}")
    _rename_nodes(graph, names)
    for value in (*graph.input, *graph.output):
        value.name = names.get(value.name, value.name)


def _rename_nodes(graph: Any, names: Mapping[str, str]) -> None:
    for node in graph.node:
        for tensors in (node.input, node.output):
            tensors[:] = [names.get(name, name) for name in tensors]
        for attribute in node.attribute:
            for inner_graph in [attribute.g] if attribute.HasField("g") else [*attribute.graphs]:
                # ONNX gives inner tensors no name that an outer one has.
                _rename_nodes(inner_graph, names)
                for value in inner_graph.output:
                    value.name = names.get(value.name, value.name)


def _names(graph: Any) -> set[str]:
    names = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        names.update((*node.input, *node.output))
        for attribute in node.attribute:
            for inner_graph in [attribute.g] if attribute.HasField("g") else [*attribute.graphs]:
                names |= _names(inner_graph)
    return names


def shift(graph: Any, names: Collection[str]) -> None:
    """Let signed tensors be unsigned in place, zero points shifted.

    Raises `NoCounterpart` if an operator takes or makes the bytes themselves, instead of the numbers that they stand
    for.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    constants |= {
        node.output[0]: attribute.t
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    new_constants: dict[str, Any] = {}
    for node in graph.node:
        # Of the operands, the first one is the data of those that may stay.
        if shifted := [name for name in (*tensors_read(node), *node.output) if name in names]:
            _shift_zero_point(node, shifted[0], constants, new_constants)
    graph.initializer.extend(new_constants.values())


def _shift_zero_point(node: Any, name: str, constants: Mapping[str, Any], new_constants: dict[str, Any]) -> None:
    zero_name = node.input[2] if len(node.input) > 2 else ""
    if node.op_type not in _KINDS or zero_name not in constants:
        raise NoCounterpart(f"{name!r} has signed bytes in the model, which {node.op_type} takes or makes")
    zero = numpy_helper.to_array(constants[zero_name])
    new_name = f"{zero_name}:unsigned"
    new_constants[new_name] = numpy_helper.from_array((zero.astype(np.int32) + HALF).astype(np.uint8), new_name)
    node.input[2] = new_name
