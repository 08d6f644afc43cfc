"""Convolutions, also transposed, in any unblocked layout."""

from __future__ import annotations

from typing import Any

from pipeline.export.relax_onnx import integer_products, layouts
from pipeline.export.relax_onnx.elementwise import is_real
from pipeline.export.relax_onnx.graph_writer import GraphWriter
from pipeline.export.relax_onnx.operands import dtype, integers, shape
from pipeline.export.relax_onnx.tensors import Tensor


def _convolution(graph: GraphWriter, call: Any) -> Tensor:
    data, weights = (graph.tensor(operand) for operand in call.args)
    weights = graph.transpose(weights, weights_order(call))
    if is_real(data):
        # Sums are as wide as they are to come out.
        return convolve(graph, call, graph.cast(data, dtype(call)), graph.cast(weights, dtype(call)))
    form = integer_products.Form(dtype(call), 1 if _is_transposed(call) else 0)
    return integer_products.convolve(graph, data, weights, form, lambda *digits: convolve(graph, call, *digits))


def _is_transposed(call: Any) -> bool:
    return str(call.op.name).endswith("transpose")


def weights_order(call: Any) -> tuple[int, ...]:
    """Return the axes of a convolution's weights in ONNX's order."""
    return layouts.order(str(call.attrs.kernel_layout), "IO" if _is_transposed(call) else "OI")


def convolve(graph: GraphWriter, call: Any, data: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    """Write a convolution of real data and weights in ONNX's order."""
    attrs = call.attrs
    layout = str(attrs.out_layout) or str(attrs.data_layout)
    sources = [layouts.channels_first(graph, data, str(attrs.data_layout)), weights, *([] if bias is None else [bias])]
    result = graph.node(
        "ConvTranspose" if _is_transposed(call) else "Conv", sources,
        [shape(call)[axis] for axis in layouts.order(layout, "NC")], strides=integers(attrs.strides),
        pads=integers(attrs.padding), dilations=integers(attrs.dilation), group=int(attrs.groups),
        kernel_shape=list(weights.shape[2:]),
        output_padding=integers(attrs.output_padding) if _is_transposed(call) else None,
    )  # fmt: skip
    return layouts.channels_as(graph, result, layout)


WRITERS = {
    **{f"nn.conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{f"nn.conv{rank}d_transpose": _convolution for rank in (1, 2, 3)},
}
