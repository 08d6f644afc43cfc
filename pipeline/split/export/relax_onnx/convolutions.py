"""Convolutions, also transposed ones, in any layout that is not blocked."""

from __future__ import annotations

from typing import Any

from pipeline.split.export.relax_onnx import integer_products, layouts
from pipeline.split.export.relax_onnx.elementwise import is_real
from pipeline.split.export.relax_onnx.graph_writer import GraphWriter
from pipeline.split.export.relax_onnx.operands import dtype, integers, shape
from pipeline.split.export.relax_onnx.tensors import Tensor


def _convolution(graph: GraphWriter, call: Any) -> Tensor:
    weights = graph.tensor(call.args[1])
    return _write(graph, call, "Conv", graph.transpose(weights, layouts.order(str(call.attrs.kernel_layout), "OI")))


def _transposed_convolution(graph: GraphWriter, call: Any) -> Tensor:
    weights = graph.transpose(graph.tensor(call.args[1]), layouts.order(str(call.attrs.kernel_layout), "IO"))
    return _write(graph, call, "ConvTranspose", weights, output_padding=integers(call.attrs.output_padding))


def _write(graph: GraphWriter, call: Any, kind: str, weights: Tensor, **attributes: Any) -> Tensor:
    attrs = call.attrs
    data = layouts.channels_first(graph, graph.tensor(call.args[0]), str(attrs.data_layout))
    layout = str(attrs.out_layout) or str(attrs.data_layout)
    extents = [shape(call)[axis] for axis in layouts.order(layout, "NC")]
    form = dict(
        strides=integers(attrs.strides), pads=integers(attrs.padding),
        dilations=integers(attrs.dilation), group=int(attrs.groups), kernel_shape=list(weights.shape[2:]), **attributes,
    )  # fmt: skip

    def convolve(real_data: Tensor, real_weights: Tensor) -> Tensor:
        return graph.node(kind, [real_data, real_weights], extents, **form)

    if is_real(data):
        # Sums are as wide as they are to come out.
        result = convolve(graph.cast(data, dtype(call)), graph.cast(weights, dtype(call)))
    else:
        result = integer_products.convolve(graph, data, weights, dtype(call), convolve)
    return layouts.channels_as(graph, result, layout)


WRITERS = {
    **{f"nn.conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{f"nn.conv{rank}d_transpose": _transposed_convolution for rank in (1, 2, 3)},
}
