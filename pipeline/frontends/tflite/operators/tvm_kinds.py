"""Real operators of TVM's importer, where it is right."""

from __future__ import annotations

from typing import Any

from pipeline.frontends.fallback import UNKNOWN
from pipeline.frontends.tflite.flatbuffer import TfliteOperator
from pipeline.frontends.tflite.operators.converter import QUANTIZED, Converter, clamping

_KINDS = (
    "ABS", "ADD", "ADD_N", "ATAN2", "AVERAGE_POOL_2D", "BROADCAST_TO", "CEIL", "CONV_2D", "COS", "CUMSUM",
    "DEPTH_TO_SPACE", "DEPTHWISE_CONV_2D", "DEQUANTIZE", "DIV", "ELU", "EQUAL", "EXP", "FILL", "FLOOR", "FLOOR_DIV",
    "FLOOR_MOD", "GATHER", "GATHER_ND", "GELU", "GREATER", "GREATER_EQUAL", "HARD_SWISH", "L2_NORMALIZATION",
    "LEAKY_RELU", "LESS", "LESS_EQUAL", "LOCAL_RESPONSE_NORMALIZATION", "LOG", "LOGICAL_AND", "LOGICAL_NOT",
    "LOGICAL_OR", "LOGISTIC", "LOG_SOFTMAX", "MAXIMUM", "MAX_POOL_2D", "MEAN", "MINIMUM", "MUL", "NEG", "NOT_EQUAL",
    "ONE_HOT", "PACK", "PAD", "PADV2", "POW", "PRELU", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN",
    "REDUCE_PROD", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "RESHAPE", "RESIZE_BILINEAR", "REVERSE_V2",
    "ROUND", "RSQRT", "SELECT", "SELECT_V2", "SIGN", "SIN", "SLICE", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "SQRT",
    "SQUARE", "STRIDED_SLICE", "SUB", "SUM", "TANH", "TILE", "TRANSPOSE", "UNPACK", "ZEROS_LIKE",
)  # fmt: skip


# A custom operator that TVM has under a name of its own.
_NAMES = {"CUSTOM TFLite_Detection_PostProcess": "DETECTION_POSTPROCESS"}


def convert(importer: Any, operator: TfliteOperator) -> Any:
    """Return the result of TVM's importer."""
    return importer.convert_map[_NAMES.get(operator.kind, operator.kind)](op=operator.table)


CONVERTER = Converter(convert, approximates=True)
"""Converter of all TVM's kinds."""


def _why_not(importer: Any, operator: TfliteOperator) -> str:
    """Object to forms of operators wrong in TVM."""
    if operator.kind in {"MEAN", "POW"} and not operator.operands[0].dtype.startswith("float"):
        return "its tensors are of whole numbers"
    if operator.kind == "GATHER" and operator.options is not None and operator.options.BatchDims():
        return "its indices differ between the frames of a batch"
    return clamping(importer, operator)


CONVERTERS: dict[str, Converter] = dict.fromkeys(_KINDS, Converter(convert, _why_not, approximates=True))


def why_refused(importer: Any, operator: TfliteOperator) -> str:
    """Describe an operator refused even as an approximation, else ""."""
    kind = _NAMES.get(operator.kind, operator.kind)
    if kind not in importer.convert_map:
        return UNKNOWN
    if not operator.is_quantized:
        return ""
    if operator.quantizes_anew:
        return "only its weights are quantised"
    # TVM would compute with the stored numbers of others.
    return "" if kind in importer._SUPPORTED_QUANTIZED_OPS else QUANTIZED  # noqa: SLF001 - no public list
