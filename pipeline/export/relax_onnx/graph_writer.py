"""GraphWriter: the nodes of an ONNX graph, one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax

from pipeline.export.relax_onnx.axis_orders import FOLLOWERS, find_order, inverse, undo
from pipeline.export.relax_onnx.operands import Definitions
from pipeline.export.relax_onnx.tensors import Node, Tensor, Unwritable, constant
from pipeline.model.passes.bindings import array

Results = Tensor | Sequence[Tensor]


class GraphWriter:
    """Writer of nodes, with the tensor of each Relax variable.

    `nodes` are in topological order; `transposed` has tensors by the original and the order of axes.
    """

    def __init__(self, module: Any, *, exact: bool = False) -> None:
        self.exact = exact
        self.module, self.definitions = module, Definitions(module["main"])
        self.nodes: list[Node] = []
        self.makers: dict[Tensor, Node] = {}
        self._values: dict[Any, Results] = {}
        self._inputs: set[Tensor] = set()
        self.transposed: dict[tuple[Tensor, tuple[int, ...]], Tensor] = {}

    def add_input(self, param: Any) -> Tensor:
        """Return the tensor of a parameter of the function."""
        tensor: Tensor = self.placeholder(param.ty)
        tensor.name = str(param.name)
        self._values[param] = tensor
        self._inputs.add(tensor)
        return tensor

    def placeholder(self, ty: Any) -> Any:
        """Return unmade tensors of a Relax type."""
        if hasattr(ty, "fields"):
            return [self.placeholder(field) for field in ty.fields]
        try:
            return Tensor(tuple(int(extent) for extent in ty.shape), str(ty.dtype))
        except (AttributeError, TypeError):
            return Tensor((), str(getattr(ty, "dtype", "")))

    def bind(self, variable: Any, results: Results) -> None:
        """Bind a variable to its tensor, and name an unnamed tensor."""
        self._values[variable] = results
        if isinstance(results, Tensor) and not results.name and results.values is None:
            results.name = str(variable.name)

    def tensor(self, expression: Any) -> Tensor:
        """Return the tensor of a variable or a constant."""
        results = self.results(expression)
        return results if isinstance(results, Tensor) else results[0]

    def results(self, expression: Any) -> Any:
        """Return the tensor or tensors of an expression."""
        if isinstance(expression, relax.Tuple):
            return [self.tensor(field) for field in expression.fields]
        if (values := array(expression)) is not None:
            return Tensor(values.shape, str(expression.ty.dtype), values=values)
        if isinstance(expression, relax.TupleGetItem):
            return self.results(expression.tuple_value)[expression.index]
        if expression not in self._values:
            raise Unwritable
        return self._values[expression]

    def outputs(self, named: Sequence[tuple[str, Tensor]]) -> list[Tensor]:
        """Return the named outputs, each from a node of its own."""
        taken: set[Tensor] = set()
        names: set[str] = {tensor.name for tensor in self._inputs}
        outputs: list[Tensor] = []
        for name, source in named:
            tensor = source
            if source in taken or source not in self.makers or source.name != name:
                tensor = self.node("Identity", [source])
                tensor.name = name if name not in names else f"{name}:{len(outputs)}"
            taken.add(tensor)
            names.add(tensor.name)
            outputs.append(tensor)
        return outputs

    def node(
        self, kind: str, inputs: Sequence[Tensor | None], shape: Sequence[int] | None = None,
        dtype: str | None = None, *, axes: Sequence[int] | None = None, **attributes: Any,
    ) -> Tensor:  # fmt: skip
        """Write a node of one result, by default like its first input."""
        first = inputs[0]
        assert first is not None or (shape is not None and dtype is not None)  # noqa: S101 - a writer's fault
        extents = tuple(shape if shape is not None else first.shape)  # type: ignore[union-attr]
        kind_of_result = dtype or first.dtype  # type: ignore[union-attr]
        order = find_order(inputs, len(extents), self.makers) if _follows(kind, attributes) else None
        sources = None if order is None else undo(inputs, order, self.transposed)
        if order is None or sources is None:
            output, written = Tensor(extents, kind_of_result), list(inputs)
        else:
            output, written = Tensor(tuple(extents[axis] for axis in inverse(order)), kind_of_result), sources
        self.add(Node(kind, written, [output], attributes, None if axes is None else tuple(axes)))
        return output if order is None or sources is None else self.transpose(output, order)

    def several(
        self, kind: str, inputs: Sequence[Tensor | None], results: Sequence[tuple[Sequence[int], str]],
        **attributes: Any,
    ) -> list[Tensor]:  # fmt: skip
        """Write a node of several results with shapes and dtypes."""
        outputs = [Tensor(tuple(shape), dtype) for shape, dtype in results]
        self.add(Node(kind, list(inputs), outputs, attributes))
        return outputs

    def add(self, node: Node) -> None:
        """Append a node."""
        self.nodes.append(node)
        self.makers.update(dict.fromkeys(node.outputs, node))

    def elementwise(self, kind: str, *inputs: Tensor, dtype: str | None = None, **attributes: Any) -> Tensor:
        """Write an element-wise node with broadcast operands."""
        shape = np.broadcast_shapes(*(tensor.shape for tensor in inputs))
        return self.node(kind, inputs, shape, dtype, **attributes)

    def scalar(self, value: float, like: Tensor) -> Tensor:
        """Return a constant of another tensor's dtype, without extents."""
        return constant(value, like.dtype)

    def cast(self, source: Tensor, dtype: str) -> Tensor:
        """Write a cast, unless the dtype is the same."""
        if source.dtype == dtype:
            return source
        if source.values is not None:
            return constant(source.values.astype(dtype))
        return self.node("Cast", [source], dtype=dtype, to=dtype)

    def reshape(self, source: Tensor, shape: Sequence[int]) -> Tensor:
        """Write a reshape, unless the shape is the same; -1 is allowed."""
        if -1 in shape:
            size = math.prod(extent for extent in shape if extent != -1)
            shape = [math.prod(source.shape) // size if extent == -1 else extent for extent in shape]
        if tuple(shape) == source.shape:
            return source
        if source.values is not None:
            return constant(source.values.reshape(shape))
        if math.prod(shape) == 0:
            # A zero would mean the source's own extent; there is nothing to take along.
            return self.expand(constant(np.zeros((0,) + (1,) * (len(shape) - 1)), source.dtype), shape)
        extents = list(shape)
        return self.node("Reshape", [source, constant(extents, np.int64)], shape)

    def transpose(self, source: Tensor, order: Sequence[int]) -> Tensor:
        """Write a transposition, merged with an earlier one."""
        axes = tuple(int(axis) % len(source.shape) for axis in order)
        if axes == tuple(range(len(axes))):
            return source
        if source.values is not None:
            return constant(source.values.transpose(axes))
        if (source, axes) not in self.transposed:
            shape = [source.shape[axis] for axis in axes]
            turned = self.node("Transpose", [source], shape, perm=list(axes))
            self.transposed[source, axes] = turned
            self.transposed[turned, inverse(axes)] = source
        return self.transposed[source, axes]

    def concat(self, sources: Sequence[Tensor], axis: int) -> Tensor:
        """Write tensors side by side."""
        if len(sources) == 1:
            return sources[0]
        constants = [source.values for source in sources if source.values is not None]
        if len(constants) == len(sources):
            return constant(np.concatenate(constants, axis))
        order = find_order(sources, len(sources[0].shape), self.makers)
        if order is not None and all((source, inverse(order)) in self.transposed for source in sources):
            originals = [self.transposed[source, inverse(order)] for source in sources]
            return self.transpose(self.concat(originals, order[axis]), order)
        extents = list(sources[0].shape)
        extents[axis] = sum(source.shape[axis] for source in sources)
        return self.node("Concat", sources, extents, axis=axis)

    def expand(self, source: Tensor, shape: Sequence[int]) -> Tensor:
        """Write a broadcast, unless the shape is the same."""
        if tuple(shape) == source.shape:
            return source
        return self.node("Expand", [source, constant(list(shape), np.int64)], shape)

    def gather(self, source: Tensor, places: Tensor, axis: int) -> Tensor:
        """Write the values at these places along an axis."""
        shape = (*source.shape[:axis], *places.shape, *source.shape[axis + 1 :])
        return self.node("Gather", [source, places], shape, axis=axis)

    def slice(self, source: Tensor, ranges: Mapping[int, tuple[int, int, int]], shape: Sequence[int]) -> Tensor:
        """Write a slice: start, stop and step by axis."""
        if tuple(shape) == source.shape and all(step == 1 for _, _, step in ranges.values()):
            return source
        if source.values is not None and all(start >= 0 and step > 0 for start, _, step in ranges.values()):
            return constant(
                source.values[tuple(slice(*ranges.get(axis, (None,))) for axis in range(source.values.ndim))]
            )
        starts, ends, steps = (
            constant([axis_range[part] for axis_range in ranges.values()], np.int64) for part in range(3)
        )
        return self.node("Slice", [source, starts, ends, constant(list(ranges), np.int64), steps], shape)

    def flip(self, source: Tensor, axis: int) -> Tensor:
        """Write a tensor backwards along an axis."""
        return self.slice(source, {axis: (-1, -source.shape[axis] - 1, -1)}, source.shape)


def _follows(kind: str, attributes: Mapping[str, Any]) -> bool:
    # A scale for each place along an axis has no axes to turn.
    return kind in FOLLOWERS and attributes.get("axis") is None
