"""Folding: values of extents and constants become constants."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .loop_types import state_loop_types
from .tensors import MOST_ELEMENTS, constants, infer_types, opset, static_shape, tensor_types, tensors_read
from .unrolling import Unroller

MOST_ROUNDS = 20
"""Bound on rounds. Shapes yield constants, and these yield shapes: each round resolves at least one more level of an
exporter's nesting."""

# Different each time that they are computed.
_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}

# Their results have at most as many elements, for each axis, as what they read.
_NO_LARGER = {"Compress", "NonZero", "Unique"}


def fold_shapes(model: Any) -> Any:
    """Return the model with folded extents and inferred types.

    The model's inputs have their extents.
    """
    version = opset(model)
    unroller = Unroller(version)
    for _ in range(MOST_ROUNDS):
        model = infer_types(model)
        has_stated_types = state_loop_types(model, dict(constants(model.graph)), version)
        if not _Folding(model, unroller).run() and not has_stated_types:
            break
    _drop_unread(model.graph)
    return model


def _drop_unread(graph: Any) -> None:
    """Remove dead nodes, such as former shape computations."""
    needed_names = {value.name for value in graph.output}
    nodes = []
    for node in reversed(graph.node):
        if needed_names.intersection(node.output):
            needed_names.update(tensors_read(node))
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(reversed(nodes))


class _Folding:
    """One pass over a graph in its order, in place."""

    def __init__(self, model: Any, unroller: Unroller) -> None:
        self._model = model
        self._unroller = unroller
        self._types = tensor_types(model.graph)
        self._constants = dict(constants(model.graph))
        self._outputs = {value.name for value in model.graph.output}
        self._input_names = {value.name for value in model.graph.input}

    def run(self) -> bool:
        """Fold; True if anything changed."""
        nodes: list[Any] = []
        has_changed = False
        for node in self._model.graph.node:
            replacement = self._replace(node)
            has_changed |= replacement is not None
            nodes += [node] if replacement is None else replacement
        if has_changed:
            del self._model.graph.node[:]
            self._model.graph.node.extend(nodes)
        return has_changed

    def _replace(self, node: Any) -> list[Any] | None:
        """Return plainer equivalents of a node, or None."""
        if node.op_type == "If" and (branch := self._branch(node)) is not None:
            return list(_inline(node, branch))
        if node.op_type == "CastLike" and (dtype := self._element_type(node.input[1])):
            return [helper.make_node("Cast", [node.input[0]], list(node.output), name=node.name, to=dtype)]
        if node.op_type == "Range" and (vectors := self._vectors(node)):
            return list(_read_scalars(node, vectors))
        if (steps := self._unroller.unroll(node, self._constants, self._types)) is not None:
            return steps
        values = self._values(node)
        return None if values is None else list(self._as_constants(node, values))

    def _vectors(self, node: Any) -> list[str]:
        """Return a node's operands known as one-element vectors."""
        return [name for name in dict.fromkeys(node.input) if static_shape(self._types.get(name)) == (1,)]

    def _branch(self, node: Any) -> Any:
        condition = self._constants.get(node.input[0])
        if condition is None or condition.size != 1:
            return None
        name = "then_branch" if bool(condition.reshape(())) else "else_branch"
        return next(attribute.g for attribute in node.attribute if attribute.name == name)

    def _element_type(self, name: str) -> int:
        """Return ONNX's number of a tensor's dtype, or 0."""
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
        """Check for constant operands and no known large result."""
        if not all(not name or name in self._constants for name in node.input):
            return False
        # Compilers know a quantised layer by its weights in bytes and their DequantizeLinear.
        if node.op_type == "DequantizeLinear" and self._constants[node.input[0]].ndim:
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


def _inline(node: Any, branch: Any) -> Iterator[Any]:
    """Yield a branch's nodes, and its results renamed."""
    for tensor in branch.initializer:
        yield helper.make_node("Constant", [], [tensor.name], value=tensor)
    yield from branch.node
    for result, name in zip(branch.output, node.output, strict=True):
        if name:
            yield helper.make_node("Identity", [result.name], [name], name=node.name)


def _read_scalars(node: Any, vectors: Collection[str]) -> Iterator[Any]:
    """Yield a node with scalars for one-element vectors. ONNX Runtime takes vectors only where it infers no shape."""
    scalars = {name: f"{node.output[0]}/{name}" for name in vectors}
    for name, scalar in scalars.items():
        yield helper.make_node("Squeeze", [name], [scalar])
    node.input[:] = [scalars.get(name, name) for name in node.input]
    yield node
