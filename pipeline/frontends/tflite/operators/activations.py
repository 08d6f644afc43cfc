"""Activations, element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator
from pipeline.frontends.tflite.operators.converter import Converter, constant_operands
from pipeline.model.passes.bindings import constant

_constant_slopes = constant_operands(1)


def prelu(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``PRELU`` with a slope for each channel."""
    data, slopes = operator.operands
    values = np.broadcast_to(slopes.constant.reshape(-1), (data.shape[-1],))
    return relax.op.nn.prelu(importer.value(data), constant(np.ascontiguousarray(values)), axis=len(data.shape) - 1)


def _why_no_prelu(importer: Any, operator: TfliteOperator) -> str:
    """Object to slopes that differ between the pixels of a channel.

    TVM stores one for each element.
    """
    if objection := _constant_slopes(importer, operator):
        return objection
    data, slopes = operator.operands
    per_channel = math.prod(slopes.shape) in (1, slopes.shape[-1] if slopes.shape else 1)
    return "" if data.shape and per_channel else "its slopes differ within a channel"


CONVERTERS: dict[str, Converter] = {"PRELU": Converter(prelu, _why_no_prelu, approximates=True)}
"""Converters by kind."""
