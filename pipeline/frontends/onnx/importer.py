"""TVM's ONNX importer with the model's names, without training's parts."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, te, tirx
from tvm.ir import Call, GenericConst
from tvm.relax.frontend.onnx import onnx_frontend

from pipeline.core import packed_model
from pipeline.errors import reason
from pipeline.frontends.fallback import UNKNOWN, OperatorRefused
from pipeline.frontends.onnx.external_data import ExternalData
from pipeline.frontends.onnx.islands import DOMAIN
from pipeline.frontends.onnx.kernels import as_operator
from pipeline.frontends.onnx.operators.node_call import NodeCall, integers
from pipeline.frontends.onnx.operators.registry import CONVERTERS, wrong_conversion
from pipeline.frontends.onnx.operators.resizing import drop_empty
from pipeline.frontends.onnx.simplification.tensors import is_external, static_shape, tensor_types
from pipeline.model.passes.bindings import call_island, constant, with_form
from pipeline.tvm.objects import items

# TVM would stack all operands and reduce; a chain of two at a time fuses and needs no memory.
_CHAINS = {"Sum": relax.op.add, "Max": relax.op.maximum, "Min": relax.op.minimum}

# Sequences are tuples of tensors while a model is imported; nothing of them is left in its graph.
_MAKING_SEQUENCES = {"SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SplitToSequence"}
_TAKING_SEQUENCES = {"ConcatFromSequence", "SequenceAt", "SequenceErase", "SequenceInsert", "SequenceLength"}


# Two of these share a byte, of which TVM makes no tensors; dequantised, they are the same in one of their own.
_NARROW_DTYPES = {TensorProto.INT4: "int8", TensorProto.UINT4: "uint8"}


def why_unsupported(node: Any, read: set[str]) -> str:
    """Describe an unimportable node, by kind or form, else "".

    `read`: the tensors that nodes or the model's user read.
    """
    if node.domain == DOMAIN:
        return ""
    if full_kind(node) not in supported_kinds():
        return UNKNOWN
    return wrong_conversion(node, read)


def full_kind(node: Any) -> str:
    """Return a node's operator, with a foreign domain."""
    return str(node.op_type) if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


# TVM's table holds operators of other domains too; its Attention is one of com.microsoft.
_OF_OTHER_DOMAINS = {
    "AllClassNMS", "Attention", "BiasGelu", "EmbedLayerNormalization", "FastGelu", "MatMulInteger16",
    "SkipLayerNormalization",
}  # fmt: skip


# TVM makes its table anew for each that asks, and looks for a converter's versions for each node.
_tvm_converters = functools.cache(onnx_frontend._get_convert_map)  # noqa: SLF001 - there is no public list


@functools.cache
def _tvm_converter(kind: str, opset: int) -> Callable[..., Any]:
    converter: Callable[..., Any] = _tvm_converters()[kind].get_converter(opset)
    return converter


@functools.cache
def supported_kinds() -> frozenset[str]:
    """Return the importable operators with their domains."""
    return frozenset(({*_tvm_converters(), "Constant"} - _OF_OTHER_DOMAINS) | CONVERTERS.keys())


class _OpenShape(ValueError):
    """Raised when the shape of a result depends on values."""


class OnnxImporter(onnx_frontend.ONNXGraphImporter):  # type: ignore[misc]
    """Importer of a graph, with the variable of each ONNX tensor.

    `fixed` refuses a node whose result is of another dtype than ONNX gives it, or of a shape that depends on values.
    """

    def __init__(self, graph: Any, data: ExternalData, *, fixed: bool) -> None:
        # TVM takes an extent of 0 for one that is not known.
        shapes = {value.name: static_shape(value.type) for value in graph.input}
        super().__init__(
            {name: list(shape) for name, shape in shapes.items() if shape and 0 in shape}, "float32", sanitize=False
        )
        self._data = data
        self.names: dict[Any, str] = {}
        self.operators: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        self.current_node = "the graph"
        # TVM hands no node to _convert_operator, but visits them in this order, so that a second iterator knows which
        # it is.
        self._pending = iter(graph.node)
        self._types = tensor_types(graph)
        self._output_names = {value.name for value in graph.output}
        self._fixed = fixed
        # Converters call the builder's emit_te; only by replacing that do their kernels pass by us.
        self._emit_te = self.bb.emit_te
        self.bb.emit_te = self._emit_operator

    def from_onnx(self, graph: Any, opset: int) -> Any:
        """Import without TVM's printed arguments of failing converters."""
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                return super().from_onnx(graph, opset)
        finally:
            # Parts of a ring, which would keep all constants until Python looks for such.
            del self.bb.emit_te
            self._nodes.clear()

    def _parse_array(self, tensor_proto: Any) -> Any:
        if is_external(tensor_proto):
            return self._data.tensor(tensor_proto)
        values = numpy_helper.to_array(tensor_proto)
        if tensor_proto.data_type in _NARROW_DTYPES:
            return constant(values.astype(_NARROW_DTYPES[tensor_proto.data_type])).value
        return constant(values.reshape(tuple(tensor_proto.dims))).value

    def _parse_attr(self, attr_proto: Any) -> Any:
        values = {attribute.name: helper.get_attribute_value(attribute) for attribute in attr_proto}
        # TVM's converters know no empty lists.
        return {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
            if not isinstance(value, list) or value
        }

    def _check_for_unsupported_ops(self, graph: Any) -> None:
        """Do nothing: nodes are checked before; islands are unknown to TVM."""

    def _construct_nodes(self, graph: Any) -> None:
        for node in graph.node:
            # TVM's converter takes a tensor only.
            if node.op_type == "Identity" and isinstance(self._nodes.get(node.input[0]), relax.Tuple):
                self._nodes[node.output[0]] = self._nodes[node.input[0]]
                next(self._pending)
            else:
                self._construct_node(node)

    def _construct_node(self, node: Any) -> None:
        try:
            super()._construct_nodes(_OneNode([node]))
            if self._fixed:
                self._compute_constant_outputs(node)
                self._check_types(node)
        except Exception as error:  # TVM raises whatever its converters meet
            self.current_node = f"node {node.name or node.output[0]!r} ({node.op_type})"
            # The shape of a result is no matter of the operator.
            is_alone = isinstance(error, _OpenShape)
            raise OperatorRefused(node, self.current_node, reason(error), is_alone=is_alone) from error

    def _compute_constant_outputs(self, node: Any) -> None:
        """Let outputs computed from extents be copies of inputs' values. Stages compute their extents from inputs."""
        operand = next((self._nodes[name] for name in node.input if isinstance(self._nodes.get(name), relax.Var)), None)
        for name in node.output:
            value = self._nodes.get(name)
            if isinstance(value, relax.ShapeExpr) and all(isinstance(extent, tirx.IntImm) for extent in value.values):
                value = self._nodes[name] = integers([int(extent) for extent in value.values])
            if name in self._output_names and operand is not None and isinstance(value, GenericConst):
                copy = self.bb.call_te(_copy, value, operand, primfunc_name_hint="constant")
                self._nodes[name] = self._bind(with_form(copy, {"kind": "Identity"}), name)

    def _check_types(self, node: Any) -> None:
        """Raise `ValueError` for results of other dtypes or open shapes."""
        for name in node.output:
            value_type = getattr(self._nodes.get(name), "ty", None)
            if isinstance(value_type, relax.ShapeType):
                raise _OpenShape(f"{name!r} is a shape that depends on values")
            if isinstance(value_type, relax.TensorType):
                self._check_type(name, value_type)

    def _check_type(self, name: str, value_type: Any) -> None:
        shape = value_type.shape
        if shape is None or not all(isinstance(extent, tirx.IntImm) for extent in items(shape.values)):
            raise _OpenShape(f"the shape of {name!r} depends on values")
        # Shapes are not compared: ONNX's inference rounds a pooling's extents up where its runtimes do not.
        expected_type = self._types.get(name)
        if expected_type is not None and str(value_type.dtype) != (dtype := _dtype(expected_type)):
            raise ValueError(f"{name!r} would be {value_type.dtype} instead of {dtype}")

    def _emit_operator(self, kernel: Any, *operands: Any, **options: Any) -> Any:
        operator = as_operator(kernel, *operands, **options)
        return self._emit_te(kernel, *operands, **options) if operator is None else self.bb.emit(operator)

    def _new_var(self, var_name: str, shape: Any, dtype: str = "float32") -> Any:
        """Make the variable of a model input."""
        var = super()._new_var(var_name, shape, dtype)
        self.names[var] = var_name
        return var

    def _convert_operator(self, op_name: str, inputs: Any, attrs: Any, opset: int) -> Any:
        node = next(self._pending)
        self.current_node = f"node {node.name or node.output[0]!r} ({op_name})"
        # TVM iterates over whatever stands for a sequence, and over a tensor for ever.
        if any(isinstance(operand, relax.Tuple) is not (op_name in _TAKING_SEQUENCES) for operand in inputs[:1]):
            raise ValueError(
                "it takes a sequence that depends on values"
                if op_name in _TAKING_SEQUENCES
                else "it takes a sequence, which only operators for sequences can"
            )
        # The least of nothing is infinity by ONNX, and the largest finite number by TVM.
        if op_name in ("ReduceMax", "ReduceMin") and _has_no_elements(inputs[0]):
            raise ValueError("it reduces a tensor without elements")
        if node.domain == DOMAIN:
            return self._island(node, inputs, attrs["model"])
        result = self._convert(node, inputs, attrs, opset)
        if op_name in _MAKING_SEQUENCES:
            return self._sequence(result)
        if op_name == "Dropout" and len(node.output) == 2:
            # The mask of an inference is all ones.
            mask = relax.op.ones(result.ty.shape, "bool")
            if self._fixed:
                mask = constant(np.ones([int(extent) for extent in result.ty.shape], bool))
            result = relax.Tuple([result, self.bb.normalize(mask)])
        if node.name:
            self.operators.update(dict.fromkeys(node.output, node.name))
        return self._bind_outputs(result, list(node.output))

    def _convert(self, node: Any, inputs: Any, attrs: Any, opset: int) -> Any:
        # The identity when nothing is trained; the caller adds the mask.
        if node.op_type == "Dropout":
            return inputs[0]
        if node.op_type in _CHAINS:
            return functools.reduce(lambda *pair: self.bb.normalize(_CHAINS[node.op_type](*pair)), inputs)
        if node.op_type == "Resize":
            inputs = drop_empty(inputs)
        if (converter := CONVERTERS.get(full_kind(node))) is not None:
            value = converter(self._call(node, inputs, opset))
            if value is not None:
                return self._normalize(value)
        value = _tvm_converter(node.op_type, opset)(self.bb, inputs, attrs, [self._nodes, self._params])
        return self.bb.normalize(value) if isinstance(value, relax.Expr) else value

    def _call(self, node: Any, inputs: Any, opset: int) -> NodeCall:
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        results = tuple(_result(self._types.get(name)) if name else None for name in node.output)
        return NodeCall(full_kind(node), opset, list(inputs), attributes, results, self.bb)

    def _normalize(self, value: Any) -> Any:
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self.bb.normalize(part) for part in value.fields])
        return self.bb.normalize(value)

    def _island(self, node: Any, inputs: Any, model: bytes) -> Any:
        types = [_relax_type(self._types.get(name), name) for name in node.output]
        call = call_island(packed_model.ONNX_RUNTIME, model, inputs, types)
        self.operators.update(dict.fromkeys(node.output, node.name))
        return self._bind_outputs(self.bb.normalize(call), list(node.output))

    def _sequence(self, value: Any) -> Any:
        if not isinstance(value, relax.Tuple):
            value = self.bb.emit(value)
            value = [relax.TupleGetItem(value, number) for number in range(len(value.ty.fields))]
        return relax.Tuple([self._bind(item, "") for item in value])

    def _bind_outputs(self, value: Any, names: list[str]) -> Any:
        """Bind `value` to variables named as tensors, in node order."""
        if isinstance(value, relax.Tuple):
            return self._join([self._bind(part, name) for part, name in zip(value, names, strict=False)])
        # A call with several results: its parts are taken of the variable that it is bound to.
        if hasattr(value, "ty") and hasattr(value.ty, "fields"):
            result = self.bb.emit(value)
            return self._join([self._bind(relax.TupleGetItem(result, i), name) for i, name in enumerate(names)])
        return self._bind(value, names[0])

    def _bind(self, value: Any, name: str) -> Any:
        if isinstance(value, Call | relax.TupleGetItem):
            # Without its name: TVM would change one that it uses itself, such as that of a function.
            value = self.bb.emit(value)
        if isinstance(value, relax.Var) and name:
            variable_name = self.names.setdefault(value, name)
            if variable_name != name:
                self.aliases[name] = variable_name
        return value

    @staticmethod
    def _join(values: list[Any]) -> Any:
        return values[0] if len(values) == 1 else relax.Tuple(values)


def _copy(values: Any, _: Any) -> Any:
    return te.compute(values.shape, values, "copy")


class _OneNode(NamedTuple):
    """A graph of one node for TVM's importer to iterate."""

    node: Sequence[Any]


def _has_no_elements(value: Any) -> bool:
    extents = getattr(value.ty, "shape", None) or ()
    return any(isinstance(extent, tirx.IntImm) and int(extent) == 0 for extent in extents)


def _relax_type(value_type: Any, name: str) -> Any:
    shape = static_shape(value_type)
    if shape is None:
        raise _OpenShape(f"the shape of {name!r} depends on values")
    return relax.TensorType(shape, _dtype(value_type))


def _result(value_type: Any) -> tuple[tuple[int, ...] | None, str | None]:
    if value_type is None or not value_type.HasField("tensor_type"):
        return None, None
    return static_shape(value_type), _dtype(value_type) if value_type.tensor_type.elem_type else None


def _dtype(value_type: Any) -> str:
    return _dtype_name(value_type.tensor_type.elem_type)


@functools.cache
def _dtype_name(number: int) -> str:
    return str(helper.tensor_dtype_to_np_dtype(number))
