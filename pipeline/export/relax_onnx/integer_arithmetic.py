"""Integer arithmetic: shifts, bits, and quotients rounded down."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.export.relax_onnx.elementwise import is_real
from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.tensors import Tensor, constant


def _by_operands(write: Callable[..., Tensor], graph: GraphWriter, call: Any) -> Tensor:
    return write(graph, *(graph.tensor(operand) for operand in call.args))


def shift_left(graph: GraphWriter, source: Tensor, bits: Tensor) -> Tensor:
    """Write a product with powers of two."""
    if source.dtype.startswith("uint"):
        return graph.elementwise("BitShift", source, graph.cast(bits, source.dtype), direction="LEFT")
    return graph.elementwise("Mul", source, _power_of_two(graph, bits, source.dtype))


def shift_right(graph: GraphWriter, source: Tensor, bits: Tensor) -> Tensor:
    """Write a quotient by powers of two, rounded down."""
    if source.dtype.startswith("uint"):
        return graph.elementwise("BitShift", source, graph.cast(bits, source.dtype), direction="RIGHT")
    largest = np.iinfo(source.dtype).bits - 1
    if bits.values is not None and (bits.values == largest).all():
        # Only the sign is left; 2 to this power would be no number of the dtype.
        is_negative = graph.elementwise("Less", source, graph.scalar(0, source), dtype="bool")
        signs = graph.node("Neg", [graph.cast(is_negative, source.dtype)])
        return signs if signs.shape == np.broadcast_shapes(source.shape, bits.shape) else graph.expand(
            signs, np.broadcast_shapes(source.shape, bits.shape)
        )  # fmt: skip
    if bits.values is not None and (bits.values < largest).all():
        return floor_divide(graph, source, _power_of_two(graph, bits, source.dtype))
    wide = floor_divide(graph, graph.cast(source, "int64"), _power_of_two(graph, bits, "int64"))
    return graph.cast(wide, source.dtype)


def _power_of_two(graph: GraphWriter, bits: Tensor, dtype: str) -> Tensor:
    if bits.values is not None:
        return constant(np.left_shift(np.int64(1), bits.values.astype(np.int64)).astype(dtype))
    unit = constant(1, np.uint64)
    return graph.cast(graph.elementwise("BitShift", unit, graph.cast(bits, "uint64"), direction="LEFT"), dtype)


def floor_divide(graph: GraphWriter, source: Tensor, divisor: Tensor) -> Tensor:
    """Write a quotient rounded down; ONNX rounds towards zero."""
    if is_real(source):
        return graph.node("Floor", [graph.elementwise("Div", source, divisor)])
    remainder = graph.elementwise("Mod", source, divisor)
    return graph.elementwise("Div", graph.elementwise("Sub", source, remainder), divisor)


def _floor_mod(graph: GraphWriter, source: Tensor, divisor: Tensor) -> Tensor:
    if not is_real(source):
        return graph.elementwise("Mod", source, divisor)
    # The operator itself has no such form for real numbers.
    multiple = graph.elementwise("Mul", floor_divide(graph, source, divisor), divisor)
    return graph.elementwise("Sub", source, multiple)


def _mod(graph: GraphWriter, call: Any) -> Tensor:
    return graph.elementwise("Mod", *(graph.tensor(operand) for operand in call.args), fmod=1)


def _bitwise(kind: str, graph: GraphWriter, call: Any) -> Tensor:
    operands = [graph.tensor(operand) for operand in call.args]
    prefix = "" if operands[0].dtype == "bool" else "Bitwise"
    return graph.elementwise(prefix + kind, *operands)


WRITERS = {
    "left_shift": functools.partial(_by_operands, shift_left),
    "right_shift": functools.partial(_by_operands, shift_right),
    "floor_divide": functools.partial(_by_operands, floor_divide),
    "floor_mod": functools.partial(_by_operands, _floor_mod),
    "mod": _mod,
    **{f"bitwise_{kind.lower()}": functools.partial(_bitwise, kind) for kind in ("And", "Or", "Xor", "Not")},
}
