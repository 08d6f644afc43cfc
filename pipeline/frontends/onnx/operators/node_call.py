"""A node of an ONNX graph with operands, attributes and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import numpy_helper
from tvm import relax, tirx

from pipeline.model.passes.bindings import array, constant


@dataclass(frozen=True)
class NodeCall:
    """A node, as a converter takes it."""

    kind: str
    """Operator, with its domain if that is not ONNX's own."""
    opset: int
    inputs: Sequence[Any]
    """Expressions of Relax; None where an operand is left out."""
    attributes: Mapping[str, Any]
    """Attributes as the onnx package reads them; texts are bytes."""
    results: tuple[tuple[tuple[int, ...] | None, str | None] | None, ...]
    """Shape and dtype of each result as the model states them; None for a result that the node does not make."""
    builder: Any

    def input(self, position: int) -> Any:
        """Return an operand; None if it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def values(self, position: int) -> np.ndarray | None:
        """Return a constant operand's values, else None."""
        return array(self.input(position))

    def is_computed(self, position: int) -> bool:
        """Check if an operand comes with each frame."""
        value = self.input(position)
        return value is not None and isinstance(value.ty, relax.TensorType) and array(value) is None

    def tensor(self, name: str) -> np.ndarray:
        """Return a tensor attribute."""
        return np.asarray(numpy_helper.to_array(self.attributes[name]))

    def text(self, name: str, default: str) -> str:
        """Return a textual attribute."""
        return str(self.attributes.get(name, default.encode()).decode())

    def shape(self, position: int = 0) -> list[int]:
        """Return the extents of an operand; `ValueError` if they depend on values."""
        return extents(self.inputs[position])

    def dtype(self, position: int = 0) -> str:
        """Return the dtype of an operand."""
        return str(self.inputs[position].ty.dtype)

    def result_shape(self, position: int = 0) -> list[int]:
        """Return the model's extents of a result; `ValueError` if it states none."""
        result = self.results[position]
        if result is None or result[0] is None:
            raise ValueError("the shape of its result depends on values")
        return list(result[0])

    def has_result(self, position: int) -> bool:
        """Check if the node has a result."""
        return position < len(self.results) and self.results[position] is not None

    def normal(self, value: Any) -> Any:
        """Return an expression with its type."""
        return self.builder.normalize(value)

    def kernel(self, function: Callable[..., Any], *operands: Any, name: str) -> Any:
        """Return the call of a kernel in tensor expressions."""
        return self.builder.normalize(self.builder.call_te(function, *operands, primfunc_name_hint=name))


Converter = Callable[[NodeCall], Any]
"""Returns a node in Relax; None if TVM's own converter is right."""


def extents(value: Any) -> list[int]:
    """Return the extents of an expression; `ValueError` if they depend on values."""
    shape = value.ty.shape
    if shape is None or not all(isinstance(extent, tirx.IntImm) for extent in shape):
        raise ValueError("the shape of what it reads depends on values")
    return [int(extent) for extent in shape]


def scalar(value: float, like: Any) -> Any:
    """Return a constant of the dtype of another expression."""
    return relax.const(value, str(like.ty.dtype))


def integer(value: int) -> Any:
    """Return a constant whole number in 64 bits."""
    return relax.const(value, "int64")


def integers(values: Sequence[int] | np.ndarray) -> Any:
    """Return a constant of whole numbers in 64 bits."""
    return constant(np.asarray(values, np.int64))


def by_axis(call: NodeCall, values: Any, axes: Any, defaults: Sequence[int]) -> Any:
    """Return a value per axis, `defaults` where unnamed."""
    axes, values = relax.op.astype(axes, "int64"), relax.op.astype(values, "int64")
    rank = integer(len(defaults))
    axes = relax.op.where(relax.op.less(axes, integer(0)), relax.op.add(axes, rank), axes)
    return call.normal(relax.op.scatter_elements(integers(defaults), call.normal(axes), call.normal(values), 0))
