"""Operators that move or locate elements."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from pipeline.frontends.tflite.flatbuffer import TfliteOperator
from pipeline.frontends.tflite.operators.converter import Converter, constant_operands
from pipeline.model.passes.bindings import constant


def _find_extreme(function: Any) -> Any:
    return functools.partial(extreme_place, function=function)


def extreme_place(importer: Any, operator: TfliteOperator, function: Any) -> Any:
    """Return ``ARG_MAX`` or ``ARG_MIN`` in the stated dtype."""
    data, axis = operator.operands
    # TVM returns int64 whatever the model states.
    positions = function(importer.value(data), int(axis.constant.item()))
    return relax.op.astype(positions, operator.outputs[0].dtype)


def expand_dims(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``EXPAND_DIMS`` or ``SQUEEZE`` as a reshape."""
    # TVM's converters give an operator one argument too many, or ask for a list of axes that need not be there.
    return relax.op.reshape(importer.value(operator.operands[0]), operator.outputs[0].shape)


def joined(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``CONCATENATION`` without its activation, as LiteRT."""
    axis = operator.options.Axis() if operator.options else 0
    return relax.op.concat([importer.value(tensor) for tensor in operator.operands], axis)


def mirror_pad(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``MIRROR_PAD`` as a gather."""
    data, widths = operator.operands
    # The numbers of the schema's enumeration MirrorPadMode; TVM refuses the second.
    mode: Any = ("reflect", "symmetric")[operator.options.Mode()]
    margins = [[int(width) for width in pair] for pair in widths.constant]
    positions = {
        axis: np.pad(np.arange(data.shape[axis]), pair, mode=mode) for axis, pair in enumerate(margins) if any(pair)
    }
    return take_positions(importer.value(data), positions)


def take_positions(data: Any, positions: Mapping[int, np.ndarray]) -> Any:
    """Return the elements of `data` at positions along axes."""
    for axis, indices in positions.items():
        data = relax.op.take(data, constant(indices.astype(np.int64)), axis)
    return data


def reverse_sequence(importer: Any, operator: TfliteOperator) -> Any:
    """Return ``REVERSE_SEQUENCE``, safe for negative lengths. LiteRT moves foreign memory there."""
    along, batch = operator.options.SeqDim(), operator.options.BatchDim()

    def reverse(data: Any, lengths: Any) -> Any:
        def element(*indices: Any) -> Any:
            length, index = lengths(indices[batch]).astype("int64"), indices[along]
            # TVM's own operator shortens sequences that are too long; this is an index that gets a check.
            reversed_index = tirx.if_then_else(index < length, length - 1 - index, index)
            return data(*indices[:along], reversed_index, *indices[along + 1 :])

        return te.compute(data.shape, element, "reverse_sequence")

    return importer.bb.call_te(reverse, *map(importer.value, operator.operands), primfunc_name_hint="reverse_sequence")


CONVERTERS: dict[str, Converter] = {
    "ARG_MAX": Converter(_find_extreme(relax.op.argmax), constant_operands(1), approximates=True),
    "ARG_MIN": Converter(_find_extreme(relax.op.argmin), constant_operands(1), approximates=True),
    "CONCATENATION": Converter(joined),
    "EXPAND_DIMS": Converter(expand_dims, approximates=True),
    "SQUEEZE": Converter(expand_dims, approximates=True),
    "MIRROR_PAD": Converter(mirror_pad, constant_operands(1), approximates=True),
    "REVERSE_SEQUENCE": Converter(reverse_sequence),
}
