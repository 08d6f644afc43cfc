"""Converter of one kind of operators, and common objections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pipeline.frontends.tflite.flatbuffer import TfliteOperator

STATE = "it keeps state between frames"
"""Why no converter takes an operator."""

QUANTIZED = "its tensors are quantised"
"""Why a converter for real numbers does not convert an operator."""

NOT_QUANTIZED = "its tensors are not quantised"
"""Why a converter for integers does not convert an operator."""


def quantized(_importer: Any, operator: TfliteOperator) -> str:
    """Object to an operator on quantised tensors."""
    return QUANTIZED if operator.is_quantized else ""


def clamping(importer: Any, operator: TfliteOperator) -> str:
    """Object to non-clamping activations and quantised tensors.

    LiteRT's kernels leave other activations out.
    """
    activation = getattr(operator.options, "FusedActivationFunction", lambda: 0)()
    # None, RELU, RELU_N1_TO_1 and RELU6 in the schema's enumeration.
    return quantized(importer, operator) if activation in range(4) else "its activation is no clamping"


class Converter(NamedTuple):
    """Converter of a kind of operators."""

    convert: Callable[[Any, TfliteOperator], Any]
    """Takes the importer and the operator, and returns its result in Relax."""
    why_not: Callable[[Any, TfliteOperator], str] = quantized
    """Takes the same, and describes why it does not convert the operator; empty if it does."""
    approximates: bool = False
    """True if it also converts an operator on quantised tensors, by way of real numbers, where nothing else can."""


def constant_operands(*positions: int) -> Callable[[Any, TfliteOperator], str]:
    """Return the objection to computed operands and quantised tensors."""

    def why_not(importer: Any, operator: TfliteOperator) -> str:
        for position in positions:
            tensor = operator.inputs[position] if position < len(operator.inputs) else None
            if tensor is not None and tensor.values is None:
                return f"its operand {tensor.name!r} is no constant"
        return quantized(importer, operator)

    return why_not
