"""Products of matrices."""

from __future__ import annotations

from typing import Any

from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, dtype, fields, shape
from pipeline.frontends.relay.operators.common import Converter, transpose

op = relax.op


def product(builder: BindingBuilder, attrs: Attributes, x: Any, y: Any, default: str = "") -> Any:
    """Return the product of `x` and `y` in the attributes' dtype."""
    out_dtype = attrs.dtype("out_dtype", default or dtype(x))
    return builder.emit(op.matmul(x, y, out_dtype=None if out_dtype == dtype(x) else out_dtype))


def transpose_matrix(builder: BindingBuilder, x: Any) -> Any:
    """Return `x` with its last two axes exchanged."""
    rank = len(shape(x))
    if rank < 2:
        raise ModelError(f"a matrix is expected, found the shape {shape(x)}")
    return transpose(builder, x, [*range(rank - 2), rank - 1, rank - 2])


def _dense(builder: BindingBuilder, attrs: Attributes, x: Any, weight: Any) -> Any:
    return product(builder, attrs, x, transpose_matrix(builder, weight))


def _matmul(builder: BindingBuilder, attrs: Attributes, x: Any, y: Any) -> Any:
    x = transpose_matrix(builder, x) if attrs.flag("transpose_a") else x
    y = transpose_matrix(builder, y) if attrs.flag("transpose_b") else y
    return product(builder, attrs, x, y)


def _batch_matmul(builder: BindingBuilder, attrs: Attributes, x: Any, y: Any) -> Any:
    """Convert a product. Up to TVM 0.7 the second operand was turned, without an attribute for it."""
    # The shapes tell which it is, unless the matrix is square: then the newer meaning wins.
    if not attrs.has("transpose_b") and len(shape(x)) == len(shape(y)) == 3:
        depth = shape(x)[1 if attrs.flag("transpose_a") else 2]
        y = transpose_matrix(builder, y) if shape(y)[1] != depth == shape(y)[2] else y
    return _matmul(builder, attrs, x, y)


def _einsum(builder: BindingBuilder, attrs: Attributes, operands: Any) -> Any:
    return builder.emit(op.einsum(list(fields(operands)), attrs.text("equation")))


TABLE: dict[str, Converter] = {
    "nn.dense": _dense,
    "nn.matmul": _matmul,
    "nn.batch_matmul": _batch_matmul,
    "einsum": _einsum,
}
