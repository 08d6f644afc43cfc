"""The table of all operators."""

from __future__ import annotations

from pipeline.frontends.relay.operators import (
    convolution,
    creation,
    detection,
    dynamic,
    elementwise,
    images,
    indexing,
    layouts,
    lookup,
    normalization,
    placement,
    pooling,
    products,
    quantized,
    rearranging,
    reductions,
    sampling,
    shapes,
)
from pipeline.frontends.relay.operators.common import Converter

_FAMILIES = (
    convolution, creation, detection, dynamic, elementwise, images, indexing, layouts, lookup, normalization,
    placement, pooling, products, quantized, rearranging, reductions, sampling, shapes,
)  # fmt: skip

TABLE: dict[str, Converter] = {name: convert for family in _FAMILIES for name, convert in family.TABLE.items()}
"""Converters by Relay's operator names."""
