"""Layouts of Relax, such as NHWC and HWIO, in ONNX's channels-first order."""

from __future__ import annotations

from pipeline.export.relax_onnx.axis_orders import inverse
from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.tensors import Tensor, Unwritable

SPACE = "DHW"
"""Letters of the axes of a window, in their order."""


def order(layout: str, first: str) -> tuple[int, ...]:
    """Return the axes with the letters `first` before the window's."""
    target = first + "".join(letter for letter in SPACE if letter in layout)
    if sorted(target) != sorted(layout):
        raise Unwritable(f"its layout {layout} is blocked")
    return tuple(layout.index(letter) for letter in target)


def channels_first(graph: GraphWriter, source: Tensor, layout: str) -> Tensor:
    """Write a transposition of data to NCHW or its like."""
    return graph.transpose(source, order(layout, "NC"))


def channels_as(graph: GraphWriter, source: Tensor, layout: str) -> Tensor:
    """Write a transposition of data from NCHW to a layout."""
    return graph.transpose(source, inverse(order(layout, "NC")))
