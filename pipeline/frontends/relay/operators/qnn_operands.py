"""Operands of qnn operators: scales and zero points by tensor and axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pipeline.errors import ModelError
from pipeline.frontends.relay.attributes import Attributes
from pipeline.frontends.relay.builder import BindingBuilder, axis, fields, shape
from pipeline.frontends.relay.operators.convolution import convolve, transpose_convolve
from pipeline.frontends.relay.operators.products import product, transpose_matrix


def quantization_axis(attrs: Attributes, x: Any, name: str = "axis") -> int:
    """Return the axis of several scales of `x`."""
    return axis(x, attrs.integer(name, -1)) if shape(x) else 0


def pair_scales(operands: Sequence[Any], count: int) -> list[tuple[Any, Any]]:
    """Return `count` scales, each with its zero point; `ModelError` if there are more or fewer."""
    if len(operands) != 2 * count:
        raise ModelError(f"expected {count} scales and {count} zero points, found {len(operands)} operands")
    return list(zip(operands[::2], operands[1::2], strict=True))


def check_product_scales(scales: Sequence[Any]) -> None:
    """Check for one scale per operand of a product; zero points precede."""
    # They are named in the operator, but only a requantize behind it uses them.
    if len(scales) != 2:
        raise ModelError(f"expected 2 scales, found {len(scales)}")


def split_terms(attrs: Attributes, x: Any, y: Any, operands: Sequence[Any]) -> list[tuple[Any, Any, Any, int]]:
    """Return a sum's two terms with scale, zero point and axis."""
    (x_scale, x_zero), (y_scale, y_zero), _ = pair_scales(operands, 3)
    return [
        (x, x_scale, x_zero, quantization_axis(attrs, x, "lhs_axis")),
        (y, y_scale, y_zero, quantization_axis(attrs, y, "rhs_axis")),
    ]


def split_parts(data: Any, scales: Any, zeros: Any) -> list[tuple[Any, Any, Any]]:
    """Return a concatenation's parts with scale and zero point."""
    return list(zip(fields(data), fields(scales), fields(zeros), strict=True))


def output_channel_axis(attrs: Attributes) -> int:
    """Return the output-channel axis of a product's weights."""
    # A dense operator has no layout; its weights are (outputs, inputs).
    layout = attrs.get("kernel_layout")
    return layout.index("O") if isinstance(layout, str) and "O" in layout else 0


def _dense(builder: BindingBuilder, attrs: Attributes, x: Any, weight: Any) -> Any:
    return product(builder, attrs, x, transpose_matrix(builder, weight), "int32")


PRODUCTS: dict[str, Callable[..., Any]] = {
    "qnn.conv2d": partial(convolve, axes=2, default="int32"),
    "qnn.conv2d_transpose": partial(transpose_convolve, axes=2, default="int32"),
    "qnn.dense": _dense,
}
"""Products of two tensors less their zero points, by the operators' names; sums are int32 if nothing else is said."""
