"""Resizing, and samples at computed positions."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import numpy as np

from pipeline.export.relax_onnx import layouts
from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.integer_arithmetic import shift_right
from pipeline.export.relax_onnx.operands import is_given, shape
from pipeline.export.relax_onnx.tensors import Tensor, Unwritable, constant
from pipeline.model.byte_resizing import BITS

_METHODS = {"nearest_neighbor": "nearest", "nearest": "nearest", "linear": "linear", "cubic": "cubic"}
_PLACES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
_ROUNDINGS = {
    "round": "round_prefer_ceil", "round_prefer_floor": "round_prefer_floor", "round_prefer_ceil": "round_prefer_ceil",
    "floor": "floor", "ceil": "ceil",
}  # fmt: skip


def _resize(graph: GraphWriter, call: Any) -> Tensor:
    attrs = call.attrs
    method, coordinates, layout = (
        _METHODS[str(attrs.method)],
        str(attrs.coordinate_transformation_mode),
        str(attrs.layout),
    )
    if coordinates not in _PLACES:
        raise Unwritable(f"its coordinates are {coordinates}")
    source = layouts.channels_first(graph, graph.tensor(call.args[0]), layout)
    extents = [shape(call)[axis] for axis in layouts.order(layout, "NC")]
    attributes: dict[str, Any] = {"mode": method, "coordinate_transformation_mode": coordinates}
    if method == "nearest":
        rounding = str(attrs.rounding_method)
        if coordinates == "align_corners" and not is_given(rounding):
            rounding = "round"
        attributes["nearest_mode"] = _ROUNDINGS[rounding or "floor"]
    if method == "cubic":
        attributes |= {"cubic_coeff_a": float(attrs.cubic_alpha), "exclude_outside": int(attrs.cubic_exclude)}
    sizes = constant(extents, np.int64)
    result = graph.node("Resize", [source, None, None, sizes], extents, **attributes)
    return graph.cast(layouts.channels_as(graph, result, layout), str(call.ty.dtype))


def write_byte_resize(graph: GraphWriter, call: Any) -> Tensor:
    """Write a quantised image's resizing, as products with its four neighbours."""
    image, rows, row_shares, columns, column_shares = (graph.tensor(operand) for operand in call.args[1].fields)
    wide, is_real = row_shares.dtype, row_shares.dtype == "float32"

    def mix(source: Tensor, axis: int, positions: Any, shares: Any) -> list[Tensor]:
        factors = ((1 if is_real else 1 << BITS) - shares, shares)
        return [
            graph.elementwise(
                "Mul",
                graph.gather(source, constant(positions[:, side], np.int64), axis),
                constant(factor.reshape(-1, *[1] * (3 - axis)), wide),
            )
            for side, factor in enumerate(factors)
        ]

    lines = mix(graph.cast(image, wide), 1, rows.values, row_shares.values)
    # The sum of real numbers depends on its order: above left, below left, above right, below right.
    sides = zip(*(mix(line, 2, columns.values, column_shares.values) for line in lines), strict=True)
    total = reduce(partial(graph.elementwise, "Add"), (term for side in sides for term in side))
    if is_real:
        total = graph.cast(graph.elementwise("Add", total, graph.scalar(0.5, total)), "int32")
    else:
        half = 1 << (2 * BITS - 1)
        is_positive = graph.elementwise("Greater", total, graph.scalar(0, total), dtype="bool")
        numbers = (graph.scalar(number, total) for number in (half, half - 1))
        total = graph.elementwise("Add", total, graph.elementwise("Where", is_positive, *numbers, dtype=wide))
        total = shift_right(graph, total, graph.scalar(2 * BITS, total))
    return graph.cast(total, image.dtype)


def _grid_sample(graph: GraphWriter, call: Any) -> Tensor:
    attrs = call.attrs
    if str(attrs.layout) not in ("NCHW", "NCDHW"):
        raise Unwritable(f"its layout is {attrs.layout}")
    data, grid = (graph.tensor(operand) for operand in call.args)
    # TVM has the coordinates in the second axis, ONNX in the last.
    grid = graph.transpose(grid, (0, *range(2, len(grid.shape)), 1))
    return graph.node(
        "GridSample", [data, grid], shape(call), mode=str(attrs.method), padding_mode=str(attrs.padding_mode),
        align_corners=int(attrs.align_corners),
    )  # fmt: skip


WRITERS = {
    **dict.fromkeys(("image.resize2d", "image.resize3d"), _resize),
    "image.grid_sample": _grid_sample,
}
