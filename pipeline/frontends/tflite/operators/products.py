"""Matrix products of real numbers."""

from __future__ import annotations

from typing import Any

from tvm import relax

from pipeline.frontends.tflite.flatbuffer import TfliteOperator
from pipeline.frontends.tflite.operators.converter import Converter, clamping


def matrix_product(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``BATCH_MATMUL``, either operand maybe constant."""
    options, operands = operator.options, []
    is_transposed = (options.AdjX(), options.AdjY()) if options else (False, False)
    # TVM's converter reshapes by way of get_expr, which a constant operand has not.
    for tensor, is_adjoint in zip(operator.operands, is_transposed, strict=True):
        order = list(range(len(tensor.shape)))
        operand = importer.real_value(tensor)
        operands.append(relax.op.permute_dims(operand, [*order[:-2], order[-1], order[-2]]) if is_adjoint else operand)
    return importer.store(relax.op.matmul(*operands), operator.outputs[0])


def dense(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``FULLY_CONNECTED`` in the stated shape; TVM keeps the input's.

    The input is taken in rows of as many elements as a row of weights, whatever its axes.
    """
    if operator.is_quantized:
        value = importer.convert_fully_connected(operator.table)
        return relax.op.reshape(value, operator.outputs[0].shape)
    data, weights, *bias = operator.operands
    rows = relax.op.reshape(importer.value(data), (-1, weights.shape[-1]))
    value = relax.op.matmul(rows, relax.op.permute_dims(importer.value(weights)))
    if bias:
        value = relax.op.add(value, relax.op.reshape(importer.value(bias[0]), (-1,)))
    value = relax.op.reshape(value, operator.outputs[0].shape)
    activation = operator.options.FusedActivationFunction() if operator.options else 0
    return importer.convert_fused_activation_function(value, activation)


CONVERTERS: dict[str, Converter] = {
    "BATCH_MATMUL": Converter(matrix_product, approximates=True),
    "FULLY_CONNECTED": Converter(dense, clamping, approximates=True),
}
