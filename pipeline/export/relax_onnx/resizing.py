"""Resizing, and samples at computed positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.export.relax_onnx import layouts
from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.operands import is_given, shape
from pipeline.export.relax_onnx.tensors import Tensor, Unwritable, constant

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
