"""Operators of TFLite in Relax: families of converters, one file each.

A `Converter` (see `converter`) has two functions of the importer and an operator.  ``convert`` returns the operator's
result as a Relax expression; a tuple, or a call with several results, if it makes several tensors.  ``why_not`` says
why this converter is not for the operator, and is empty if it is:

- the importer (`pipeline.frontends.tflite.importer.TfliteImporter`) has ``value(tensor)``, the Relax expression
  of a tensor or constant, and ``bb``, TVM's block builder;
- the operator (`pipeline.frontends.tflite.flatbuffer.TfliteOperator`) has ``kind``, ``inputs``, ``outputs`` and
  ``options``; its tensors have ``shape``, ``dtype``, ``scale`` and ``values`` (of a constant, else None).

The result has to have the dtype and shape of the operator's output, and be what LiteRT computes: of quantised tensors
bit for bit.  An operator is converted by the first family that has a converter for it without an objection.  Operators
that none converts are computed by LiteRT, see `pipeline.frontends.tflite.islands`.

A new operator is one function, and one line in its family's table; a new family is one file, and one line here.
"""

from __future__ import annotations

from typing import Any

from pipeline.frontends.fallback import UNKNOWN
from pipeline.frontends.tflite.flatbuffer import TfliteOperator
from pipeline.frontends.tflite.operators import (
    elementwise,
    hybrid_products,
    lookup,
    movement,
    products,
    quantized_arithmetic,
    quantized_movement,
    quantized_pooling,
    quantized_products,
    quantized_resizing,
    quantized_softmax,
    spatial,
    tvm_kinds,
    wide_softmax,
)
from pipeline.frontends.tflite.operators.converter import NOT_QUANTIZED, QUANTIZED, STATE, Converter

FAMILIES: tuple[dict[str, Converter], ...] = (
    # Of integers, all of which LiteRT's reference kernels define.
    quantized_products.CONVERTERS,
    quantized_arithmetic.CONVERTERS,
    quantized_pooling.CONVERTERS,
    quantized_softmax.CONVERTERS,
    wide_softmax.CONVERTERS,
    quantized_resizing.CONVERTERS,
    quantized_movement.CONVERTERS,
    lookup.CONVERTERS,
    # Of real numbers.
    hybrid_products.CONVERTERS,
    spatial.CONVERTERS,
    products.CONVERTERS,
    movement.CONVERTERS,
    elementwise.CONVERTERS,
    # The last, for what none of ours converts.
    tvm_kinds.CONVERTERS,
)
"""Tables of converters by kind, in the order of preference."""


def choose(importer: Any, operator: TfliteOperator, *, approximate: bool = False) -> Converter | str:
    """Return the converter of an operator, or the reason without one.

    `approximate`: take one also that does not compute just what LiteRT does, if there is no other.
    """
    if any(tensor.is_variable for tensor in operator.operands):
        return STATE
    candidates = [family[operator.kind] for family in FAMILIES if operator.kind in family]
    objections = [converter.why_not(importer, operator) for converter in candidates]
    for converter, objection in zip(candidates, objections, strict=True):
        if not objection:
            return converter
    if not approximate:
        # What says more than that the other kind of tensors is meant.
        reasons = [objection for objection in objections if objection not in (QUANTIZED, NOT_QUANTIZED)] or objections
        return reasons[-1] if reasons else UNKNOWN
    if refusal := tvm_kinds.why_refused(importer, operator):
        return refusal
    return next((converter for converter in candidates if converter.approximates), tvm_kinds.CONVERTER)


def convert(importer: Any, operator: TfliteOperator, *, approximate: bool = False) -> Any:
    """Return an operator's result in Relax; see `choose` for refusals."""
    converter = choose(importer, operator, approximate=approximate)
    if isinstance(converter, Converter):
        return converter.convert(importer, operator)
    raise ValueError(converter)
