"""An ONNX graph in plain terms: no functions, no old opsets, and as few computed shapes as its extents allow.

Run as a program, in a process of its own, it reads a model from the standard input and writes the plain one to the
standard output: the onnx package's shape inference is C++ that aborts on some damaged files, and would take the caller
along.  So it imports nothing of this project.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

OLDEST_OPSET = 7
"""That TVM's importer takes; older models are converted, since their Add and its like broadcast by attributes."""

MOST_ELEMENTS = 4096
"""Of a result that is folded here: shapes, axes and indices have fewer; weights are folded later, by compiled code."""

MOST_ROUNDS = 20
"""Shapes tell constants, which tell shapes: each round makes known at least one more level of an exporter's nesting."""

# Different each time that they are computed.
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}

# Their results have at most as many elements, for each axis, as what they read.
_NO_LARGER = {"Compress", "NonZero", "Unique"}


def opset(model: Any) -> int:
    """Return the version of ONNX's own operators that a model uses; 0 if it states none."""
    return max((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def expand_functions(model: Any, kinds: Collection[str] = ()) -> Any:
    """Return the model with functions written out, and of an opset that is not too old.

    Parameters
    ----------
    model : onnx.ModelProto
    kinds : collection of str
        Operators that are written out too, by those that ONNX defines them with.
    """
    # A module of the package that it does not import itself.
    from onnx import inliner

    if model.functions:
        model = inliner.inline_local_functions(model)
    # A definition may use others.
    while not set(kinds).isdisjoint(node.op_type for node in model.graph.node):
        count = len(model.graph.node)
        identifiers = [("", kind) for kind in kinds]
        # It knows no type of an operand that is left out in front of another one; such nodes stay as they are.
        with contextlib.suppress(Exception):
            model = inliner.inline_selected_functions(infer_types(model), identifiers, inline_schema_functions=True)
        # Some have a definition for some types or opsets only.
        if len(model.graph.node) == count:
            break
    if 0 < opset(model) < OLDEST_OPSET:
        _check_broadcasts(model.graph)
        model = onnx.version_converter.convert_version(model, OLDEST_OPSET)
    return model


def _check_broadcasts(graph: Any) -> None:
    """Raise `ValueError` for an operator that says which axis an operand belongs to: the converter drops that."""
    for node in graph.node:
        if {"axis", "broadcast"} <= {attribute.name for attribute in node.attribute}:
            complaint = f"{node.op_type} broadcasts along an axis (node {node.name or node.output[0]!r})"
            raise ValueError(f"its opset is too old to be converted: {complaint}")


def fold_shapes(model: Any) -> Any:
    """Return the model with what follows from its extents as constants, and with the types of its tensors.

    Parameters
    ----------
    model : onnx.ModelProto
        Inputs have their extents.
    """
    for _ in range(MOST_ROUNDS):
        model = infer_types(model)
        if not _Folding(model).run():
            break
    _drop_unread(model.graph)
    return model


def _drop_unread(graph: Any) -> None:
    """Remove the nodes that no output depends on, such as those that computed a shape."""
    needed_names = {value.name for value in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if needed_names.intersection(node.output):
            needed_names.update(tensors_read(node))
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(reversed(nodes))


def tensors_read(node: Any) -> list[str]:
    """Return the tensors that a node reads, also inside of the graphs that it runs."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else [*attribute.graphs]:
            local_names = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
            local_names |= {name for inner_node in graph.node for name in inner_node.output}
            names += [name for inner_node in graph.node for name in tensors_read(inner_node) if name not in local_names]
            names += [value.name for value in graph.output if value.name not in local_names]
    return list(dict.fromkeys(names))


def infer_types(model: Any) -> Any:
    """Return the model with the types of as many of its tensors as follow from those of its inputs."""
    # What it cannot infer is left out, and a graph that contradicts itself is as it was.
    with contextlib.suppress(onnx.shape_inference.InferenceError):
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    return model


def tensor_types(graph: Any) -> dict[str, Any]:
    """Return the types of a graph's tensors by name, as far as they are known."""
    # Weights are declared nowhere else; their extents are asked for, too.
    weights = {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, tensor.dims) for tensor in graph.initializer
    }
    return weights | {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}


def static_shape(value_type: Any) -> tuple[int, ...] | None:
    """Return the extents of a tensor of this type; None if one is unknown, or it is no tensor."""
    if value_type is None or not value_type.HasField("tensor_type") or not value_type.tensor_type.HasField("shape"):
        return None
    # Nor has a tensor of strings one that a frame could hold.
    if value_type.tensor_type.elem_type == onnx.TensorProto.STRING:
        return None
    dimensions = value_type.tensor_type.shape.dim
    if not all(dimension.HasField("dim_value") for dimension in dimensions):
        return None
    return tuple(int(dimension.dim_value) for dimension in dimensions)


class _Folding:
    """One pass over a graph in its order, in place."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._types = tensor_types(model.graph)
        self._constants = dict(_constants(model.graph))
        self._outputs = {value.name for value in model.graph.output}
        self._input_names = {value.name for value in model.graph.input}

    def run(self) -> bool:
        """Fold, and return whether anything was."""
        nodes: list[Any] = []
        has_changed = False
        for node in self._model.graph.node:
            if node.op_type == "If" and (branch := self._branch(node)) is not None:
                nodes += _inline(node, branch)
                has_changed = True
            elif node.op_type == "CastLike" and (dtype := self._element_type(node.input[1])):
                nodes.append(helper.make_node("Cast", [node.input[0]], list(node.output), name=node.name, to=dtype))
                has_changed = True
            elif (values := self._values(node)) is not None:
                nodes += self._as_constants(node, values)
                has_changed = True
            else:
                nodes.append(node)
        if has_changed:
            del self._model.graph.node[:]
            self._model.graph.node.extend(nodes)
        return has_changed

    def _branch(self, node: Any) -> Any:
        condition = self._constants.get(node.input[0])
        if condition is None or condition.size != 1:
            return None
        name = "then_branch" if bool(condition.reshape(())) else "else_branch"
        return next(attribute.g for attribute in node.attribute if attribute.name == name)

    def _element_type(self, name: str) -> int:
        """Return ONNX's number of a tensor's dtype, 0 if that is not known."""
        if name in self._constants:
            return int(helper.np_dtype_to_tensor_dtype(self._constants[name].dtype))
        value_type = self._types.get(name)
        return int(value_type.tensor_type.elem_type) if value_type is not None else 0

    def _values(self, node: Any) -> list[np.ndarray] | None:
        if node.domain not in ("", "ai.onnx") or node.op_type in _RANDOM:
            return None
        if node.op_type == "Constant":
            # TVM reads a tensor only, not a number or several.
            is_tensor = any(attribute.name == "value" for attribute in node.attribute)
            return None if is_tensor or node.output[0] not in self._constants else [self._constants[node.output[0]]]
        # An output of the model stays one that an operator makes of an input.
        if any(name in self._outputs for name in node.output) or any(attr.HasField("g") for attr in node.attribute):
            return None
        if node.op_type in ("Shape", "Size"):
            return self._extents(node)
        return self._evaluate(node) if self._is_small(node) else None

    def _is_small(self, node: Any) -> bool:
        """Return True if all that a node reads is constant, and its results are not known to be large."""
        if not all(not name or name in self._constants for name in node.input):
            return False
        shapes = [static_shape(self._types.get(name)) for name in node.output if name]
        # Of an unknown size may be all that a damaged file asks for.
        is_bounded = node.op_type in _NO_LARGER
        return all(is_bounded if shape is None else math.prod(shape) <= MOST_ELEMENTS for shape in shapes)

    def _extents(self, node: Any) -> list[np.ndarray] | None:
        constant = self._constants.get(node.input[0])
        shape = constant.shape if constant is not None else static_shape(self._types.get(node.input[0]))
        if shape is None:
            return None
        if node.op_type == "Size":
            return [np.array(math.prod(shape), np.int64)]
        options = {attribute.name: attribute.i for attribute in node.attribute}
        return [np.array(shape[options.get("start", 0) : options.get("end", len(shape))], np.int64)]

    def _evaluate(self, node: Any) -> list[np.ndarray] | None:
        read = [name for name in dict.fromkeys(node.input) if name]
        graph = helper.make_graph(
            [node],
            "constants",
            [helper.make_value_info(name, onnx.TypeProto()) for name in read],
            [helper.make_value_info(name, onnx.TypeProto()) for name in node.output if name],
        )
        model = helper.make_model(graph, opset_imports=list(self._model.opset_import))
        try:
            values = ReferenceEvaluator(model).run(None, {name: self._constants[name] for name in read})
        except Exception:  # noqa: BLE001 - the evaluator raises what its operators do; TVM may know better
            return None
        if not all(isinstance(value, np.ndarray | np.generic) and value.size <= MOST_ELEMENTS for value in values):
            return None
        return [np.asarray(value) for value in values]

    def _as_constants(self, node: Any, values: list[np.ndarray]) -> Iterator[Any]:
        for name, value in zip((name for name in node.output if name), values, strict=True):
            self._constants[name] = value
            yield helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value, name))


def _constants(graph: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the small constants of a graph."""
    for tensor in graph.initializer:
        if not is_external(tensor) and math.prod(tensor.dims) <= MOST_ELEMENTS:
            yield tensor.name, numpy_helper.to_array(tensor)
    for node in graph.node:
        if node.op_type == "Constant":
            for attribute in node.attribute:
                value = _attribute_value(attribute)
                if value is not None and value.size <= MOST_ELEMENTS:
                    yield node.output[0], value


def is_external(tensor: Any) -> bool:
    """Check whether a tensor's data lie outside of its protobuf."""
    return bool(tensor.HasField("data_location") and tensor.data_location == tensor.EXTERNAL)


def _attribute_value(attribute: Any) -> np.ndarray | None:
    if attribute.name == "value":
        return None if is_external(attribute.t) else numpy_helper.to_array(attribute.t)
    dtypes = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    dtype = dtypes.get(attribute.name)
    return None if dtype is None else np.array(helper.get_attribute_value(attribute), dtype)


def _inline(node: Any, branch: Any) -> Iterator[Any]:
    """Yield a branch's nodes, and copies of its results under the names of the node's."""
    for tensor in branch.initializer:
        yield helper.make_node("Constant", [], [tensor.name], value=tensor)
    yield from branch.node
    for result, name in zip(branch.output, node.output, strict=True):
        if name:
            yield helper.make_node("Identity", [result.name], [name], name=node.name)


def main() -> int:
    """Simplify a model on the way from the standard input to the standard output; arguments are kinds to write out."""
    try:
        model = fold_shapes(expand_functions(onnx.ModelProto.FromString(sys.stdin.buffer.read()), sys.argv[1:]))
    except Exception as error:  # noqa: BLE001 - NumPy and the converter raise several unrelated types
        print(str(error).strip() or type(error).__name__, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(model.SerializeToString())
    return 0


if __name__ == "__main__":
    sys.exit(main())
