"""Convolutions, also transposed ones, in any layout that is not blocked."""

from __future__ import annotations

from typing import Any

from pipeline.split.export.relax_onnx import layouts
from pipeline.split.export.relax_onnx.graph_writer import GraphWriter
from pipeline.split.export.relax_onnx.operands import dtype, integers, shape
from pipeline.split.export.relax_onnx.tensors import Tensor


def _convolution(graph: GraphWriter, call: Any) -> Tensor:
    attrs = call.attrs
    data, weights = _operands(graph, call)
    weights = graph.transpose(weights, layouts.order(str(attrs.kernel_layout), "OI"))
    return _write(graph, call, "Conv", data, weights)


def _transposed_convolution(graph: GraphWriter, call: Any) -> Tensor:
    attrs = call.attrs
    data, weights = _operands(graph, call)
    # Relax has the inputs' channels first here as well, whatever the letters are in its layout.
    weights = graph.transpose(weights, layouts.order(str(attrs.kernel_layout), "IO"))
    return _write(graph, call, "ConvTranspose", data, weights, output_padding=integers(attrs.output_padding))


def _operands(graph: GraphWriter, call: Any) -> tuple[Tensor, Tensor]:
    data, weights = (graph.tensor(operand) for operand in call.args)
    # Of integers the sums are wide, and of floats as wide as they are to come out.
    data, weights = (graph.cast(each, dtype(call)) for each in (data, weights))
    return layouts.channels_first(graph, data, str(call.attrs.data_layout)), weights


def _write(graph: GraphWriter, call: Any, kind: str, data: Tensor, weights: Tensor, **attributes: Any) -> Tensor:
    attrs = call.attrs
    layout = str(attrs.out_layout) or str(attrs.data_layout)
    extents = [shape(call)[axis] for axis in layouts.order(layout, "NC")]
    result = graph.node(
        kind, [data, weights], extents, dtype(call), strides=integers(attrs.strides), pads=integers(attrs.padding),
        dilations=integers(attrs.dilation), group=int(attrs.groups), kernel_shape=list(weights.shape[2:]), **attributes,
    )  # fmt: skip
    return layouts.channels_as(graph, result, layout)


WRITERS = {
    **{f"nn.conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{f"nn.conv{rank}d_transpose": _transposed_convolution for rank in (1, 2, 3)},
}
