"""TFLite graph -> Relax, by our converters and TVM's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tflite
from tvm import relax
from tvm.relax.frontend.tflite.tflite_frontend import ExprTable, OperatorConverter

from pipeline.core import packed_model
from pipeline.errors import reason
from pipeline.frontends.fallback import OperatorRefused
from pipeline.frontends.tflite import operators
from pipeline.frontends.tflite.flatbuffer import TfliteGraph, TfliteOperator, TfliteTensor
from pipeline.model.passes.bindings import call_island, constant


class IslandNode:
    """Operators for LiteRT as one node.

    `model` is a TFLite file of them, whose tensors have the order of `inputs` and `outputs`.
    """

    def __init__(
        self, name: str, model: bytes, inputs: Sequence[TfliteTensor], outputs: Sequence[TfliteTensor]
    ) -> None:
        self.name, self.model, self.inputs, self.outputs = name, model, tuple(inputs), tuple(outputs)


class TfliteImporter(OperatorConverter):  # type: ignore[misc]
    """Importer of a graph, with the variable of each tensor.

    TVM's converters are this class's methods, and find tensors by its functions, not by their names.
    """

    def __init__(self, graph: TfliteGraph) -> None:
        super().__init__(graph.model, graph.subgraph, ExprTable(), relax.BlockBuilder())
        self.names: dict[Any, str] = {}
        self.operators: dict[str, str] = {}
        self._graph = graph
        self._values: dict[int, Any] = {}
        self._made: set[int] = set()

    def run(self, nodes: Sequence[TfliteOperator | IslandNode], *, approximate: bool = False) -> Any:
        """Import `nodes` in topological order; return the module.

        `approximate`: take TVM's converter also where it does not compute just what LiteRT does.
        """
        with self.bb.function("main"):
            params = [self._input(tensor) for tensor in self._graph.inputs]
            with self.bb.dataflow():
                for node in nodes:
                    self._convert(node, approximate=approximate)
                results = [self.value(tensor) for tensor in self._graph.outputs]
                output = self.bb.emit_output(results[0] if len(results) == 1 else relax.Tuple(results))
            self.bb.emit_func_output(output, params)
        # Our converters nest calls, which passes cannot take apart.
        return relax.transform.Normalize()(self.bb.get())

    def value(self, tensor: TfliteTensor) -> Any:
        """Return the Relax expression of a tensor or constant."""
        if tensor.number not in self._values:
            self._values[tensor.number] = constant(tensor.constant)
        return self._values[tensor.number]

    def real_value(self, tensor: TfliteTensor) -> Any:
        """Return the real numbers of a tensor, quantised or not."""
        value = self.value(tensor)
        return self.dequantize(value, self._wrapper(tensor)) if tensor.is_quantized else value

    def store(self, value: Any, tensor: TfliteTensor) -> Any:
        """Return real numbers as stored in a tensor, quantised or not."""
        return self.quantize(value, self._wrapper(tensor)) if tensor.is_quantized else value

    def _wrapper(self, tensor: TfliteTensor) -> Any:
        return self.get_tensors(np.array([tensor.number]))[0]

    def _input(self, tensor: TfliteTensor) -> Any:
        variable = relax.Var(tensor.name, relax.TensorType(*tensor.frame_type))
        self._values[tensor.number] = variable
        self._made.add(tensor.number)
        self.names[variable] = tensor.name
        return variable

    def _convert(self, node: TfliteOperator | IslandNode, *, approximate: bool) -> None:
        if isinstance(node, IslandNode):
            self._bind(node.outputs, self._island(node))
            self.operators.update((tensor.name, node.name) for tensor in node.outputs)
            return
        try:
            value = operators.convert(self, node, approximate=approximate)
            # None is of an operator whose result TVM has folded.
            if value is not None:
                self._bind(node.outputs, value)
        except Exception as error:  # TVM raises whatever its converters meet
            raise OperatorRefused(node, str(node), reason(error)) from error

    def _island(self, node: IslandNode) -> Any:
        types = [relax.TensorType(*tensor.frame_type) for tensor in node.outputs]
        operands = [self.value(tensor) for tensor in node.inputs]
        return call_island(packed_model.LITERT, node.model, operands, types)

    def _bind(self, tensors: Sequence[TfliteTensor], value: Any) -> None:
        """Bind a result to variables; `ValueError` for another type."""
        variable = self.bb.emit(self.bb.normalize(value))
        parts = [variable] if len(tensors) == 1 else [self.bb.emit(variable[number]) for number in range(len(tensors))]
        for tensor, part in zip(tensors, parts, strict=True):
            made_type = (tuple(int(extent) for extent in part.ty.shape), str(part.ty.dtype))
            if made_type != tensor.frame_type:
                raise ValueError(f"{tensor.name!r} would be {made_type} instead of {tensor.frame_type}")
            self.names.setdefault(part, tensor.name)
            self._values[tensor.number] = part
            self._made.add(tensor.number)

    def get_tensors(self, tensors_idx_list: Any) -> list[Any]:
        """Return TVM's wrappers of tensors with the graph's shapes."""
        wrappers: list[Any] = super().get_tensors(tensors_idx_list)
        for wrapper in wrappers:
            if wrapper.tensor_idx >= 0:
                wrapper.tensor = _shaped(wrapper.tensor, self._graph.tensors[int(wrapper.tensor_idx)].shape)
        return wrappers

    # What TVM's converters call; by numbers, since names need not be unique.

    def get_expr(self, input_tensor_idx: int) -> Any:
        """Return the expression of a tensor, of constants too. TVM's importer has no constants."""
        return self.value(self._graph.tensors[int(input_tensor_idx)])

    def has_expr(self, input_tensor_idx: int) -> bool:
        """Check for a computed tensor or an input."""
        return int(input_tensor_idx) in self._made

    def get_tensor_expr(self, tensor: Any, is_sparse: bool = False) -> Any:
        """Return the expression of a tensor or constant."""
        return super().get_tensor_expr(tensor, is_sparse) if is_sparse else self.get_expr(tensor.tensor_idx)

    def get_tensor_value(self, tensor_wrapper: Any, is_sparse: bool = False) -> np.ndarray:
        """Return the values of a constant."""
        values = self._graph.tensors[int(tensor_wrapper.tensor_idx)].values
        return super().get_tensor_value(tensor_wrapper, is_sparse) if is_sparse or values is None else values


class _ShapedTable(tflite.Tensor):  # type: ignore[misc]
    """Flatbuffer table of a tensor under another shape."""

    def ShapeAsNumpy(self) -> np.ndarray:  # noqa: N802 - the package's name
        """Return the shape."""
        return np.array(self.shape, np.int32)

    def ShapeLength(self) -> int:  # noqa: N802
        """Return the number of axes."""
        return len(self.shape)

    def Shape(self, j: int) -> int:  # noqa: N802
        """Return one extent."""
        return int(self.shape[j])


def _shaped(table: Any, shape: tuple[int, ...]) -> Any:
    result = _ShapedTable()
    result.Init(table._tab.Bytes, table._tab.Pos)  # noqa: SLF001 - as each accessor of the package does
    result.shape = shape
    return result
