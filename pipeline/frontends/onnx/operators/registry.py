"""Table of converters by ONNX operator, with a foreign domain."""

from __future__ import annotations

from pipeline.frontends.onnx.operators import (
    activations,
    bits,
    blocks,
    convolutions,
    extents,
    fused,
    normalization,
    pooling,
    quantized,
    reductions,
    resizing,
)
from pipeline.frontends.onnx.operators.node_call import Converter
from pipeline.frontends.onnx.recurrent import operators as recurrent

CONVERTERS: dict[str, Converter] = {
    **activations.CONVERTERS,
    **bits.CONVERTERS,
    **blocks.CONVERTERS,
    **convolutions.CONVERTERS,
    **extents.CONVERTERS,
    **fused.CONVERTERS,
    **normalization.CONVERTERS,
    **pooling.CONVERTERS,
    **quantized.CONVERTERS,
    **reductions.CONVERTERS,
    **recurrent.CONVERTERS,
    **resizing.CONVERTERS,
}
