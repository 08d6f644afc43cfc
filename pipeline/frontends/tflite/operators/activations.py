"""Activations, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator
from pipeline.frontends.tflite.operators.converter import Converter, constant_operands
from pipeline.model.passes.bindings import constant


def prelu(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``PRELU`` with a slope per channel, by one kernel."""
    data, slopes = operator.operands
    value, channels = importer.value(data), data.shape[-1]
    if slopes.constant.size in (1, *slopes.shape[-1:]):
        values = np.broadcast_to(slopes.constant.reshape(-1), (channels,))
        return relax.op.nn.prelu(value, constant(np.ascontiguousarray(values)), axis=len(data.shape) - 1)
    is_below = relax.op.less(value, constant(np.zeros((), data.dtype)))
    return relax.op.where(is_below, relax.op.multiply(value, importer.value(slopes)), value)


CONVERTERS: dict[str, Converter] = {"PRELU": Converter(prelu, constant_operands(1), approximates=True)}
"""Converters by kind."""
