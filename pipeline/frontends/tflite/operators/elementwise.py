"""Element-wise and axis operators in reals, where TVM and LiteRT differ."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator
from pipeline.frontends.tflite.operators.converter import Converter, constant_operands
from pipeline.model.passes.bindings import constant


def cast(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``CAST`` that saturates; NaN becomes the largest integer."""
    (data,), (result,) = operator.operands, operator.outputs
    value = importer.value(data)
    if not (data.dtype.startswith("float") and result.dtype.startswith(("int", "uint"))):
        return relax.op.astype(value, result.dtype)
    limits, dtype = np.iinfo(result.dtype), np.dtype(data.dtype)
    # The largest whole number may have no equal in the real dtype; what is below the next power of two has one.
    end = dtype.type(float(limits.max) + 1)
    clipped = relax.op.clip(value, float(limits.min), float(np.nextafter(end, dtype.type(0))))
    is_inside = relax.op.less(value, constant(np.array(end, dtype)))
    return relax.op.where(
        is_inside, relax.op.astype(clipped, result.dtype), constant(np.array(limits.max, result.dtype))
    )


def softmax(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``SOFTMAX`` with the factor `beta`, missing in TVM."""
    (data,) = operator.operands
    value = importer.value(data)
    beta = operator.options.Beta() if operator.options else 1.0
    scaled = value if beta == 1 else relax.op.multiply(value, constant(np.array(beta, data.dtype)))
    return relax.op.nn.softmax(scaled, axis=-1)


def squared_difference(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``SQUARED_DIFFERENCE`` as a product: TVM's power is real."""
    difference = importer.bb.emit(relax.op.subtract(*map(importer.value, operator.operands)))
    return relax.op.multiply(difference, difference)


def prelu(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``PRELU`` with a slope per channel, by one kernel."""
    data, slopes = operator.operands
    value, channels = importer.value(data), data.shape[-1]
    if slopes.constant.size in (1, *slopes.shape[-1:]):
        values = np.broadcast_to(slopes.constant.reshape(-1), (channels,))
        return relax.op.nn.prelu(value, constant(np.ascontiguousarray(values)), axis=len(data.shape) - 1)
    is_below = relax.op.less(value, constant(np.zeros((), data.dtype)))
    return relax.op.where(is_below, relax.op.multiply(value, importer.value(slopes)), value)


CONVERTERS: dict[str, Converter] = {
    "CAST": Converter(cast),
    "PRELU": Converter(prelu, constant_operands(1), approximates=True),
    "SOFTMAX": Converter(softmax),
    "SQUARED_DIFFERENCE": Converter(squared_difference),
}
