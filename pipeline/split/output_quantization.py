"""Quantisation of inputs and outputs: stated by the model or its operators at the ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import relax

from pipeline.core.tensor_quantization import Quantization
from pipeline.model.passes.bindings import array, calls, operands

if TYPE_CHECKING:
    from pipeline.split.graph import Graph

# Integers behind these stand for numbers by the scale of those in front; the former leave each one in its place.
_IN_PLACE = ("clip", "nn.max_pool2d", "nn.relu")
_CHOICES = ("argmax", "argmin", "equal", "greater", "greater_equal", "less", "less_equal", "logical_and")
_MOVERS = ("concat", "expand_dims", "permute_dims", "reshape", "squeeze", "strided_slice")


def output_quantization(graph: Graph) -> tuple[Quantization, ...]:
    """Return the quantisation of integer outputs of real numbers."""
    values = {line.name: line.value for operator in graph.operators for line in operator.lines}
    integers = [spec.name for spec in graph.outputs if spec.dtype.startswith(("int", "uint"))]
    stated = {quantization.tensor: quantization for quantization in graph.quantizations}
    quantizations = [(name, stated.get(name) or _quantization(name, values)) for name in integers]
    return tuple(replace(quantization, tensor=name) for name, quantization in quantizations if quantization is not None)


def input_quantization(graph: Graph) -> tuple[Quantization, ...]:
    """Return the quantisation of integer inputs of real numbers."""
    names = {spec.name for spec in graph.inputs if spec.dtype in ("int8", "uint8")}
    stated = [quantization for quantization in graph.quantizations if quantization.tensor in names]
    for value in (line.value for operator in graph.operators for line in operator.lines):
        if calls(value, "dequantize") and isinstance(value.args[0], relax.Var) and str(value.args[0].name) in names:
            quantization = _read_quantize(value)
            stated += [] if quantization is None else [replace(quantization, tensor=str(value.args[0].name))]
    # Of several readers the first one: they read the same numbers.
    return tuple({quantization.tensor: quantization for quantization in reversed(stated)}.values())


def output_steps(graph: Graph) -> dict[str, float]:
    """Return the steps of quantised outputs, integers and floats."""
    values = {line.name: line.value for operator in graph.operators for line in operator.lines}
    steps = {spec.name: _step(spec.name, spec.dtype, values) for spec in graph.outputs}
    return {name: step for name, step in steps.items() if step is not None}


def _step(name: str, dtype: str, values: Mapping[str, Any]) -> float | None:
    value = values.get(name)
    # What is only moved, or cast, is as far apart as it was.
    while value is not None and calls(value, *_IN_PLACE, *_MOVERS, "astype") and isinstance(value.args[0], relax.Var):
        value = values.get(str(value.args[0].name))
    if dtype.startswith("float"):
        scale = array(value.args[1]) if value is not None and calls(value, "dequantize") else None
        return None if scale is None else float(scale.max())
    # Numbers of classes are no quantities: the next class is as wrong as any other.
    is_number = dtype in ("int8", "uint8", "int16", "uint16") and not calls(value, *_CHOICES)
    return 1.0 if is_number or _quantization(name, values) is not None else None


def _quantization(name: str, values: Mapping[str, Any]) -> Quantization | None:
    value = values.get(name)
    if calls(value, "quantize"):
        return _read_quantize(value)
    if not calls(value, *_IN_PLACE, *_MOVERS):
        return None
    sources = [str(operand.name) for operand in operands(value) if isinstance(operand, relax.Var)]
    quantizations = {_quantization(source, values) for source in sources}
    # Sources with different scales, once joined, stand for numbers by none.
    first = quantizations.pop() if len(quantizations) == 1 else None
    # By position along an axis, scales would have to follow what moves.
    return None if first is not None and len(first.scale) > 1 and calls(value, *_MOVERS) else first


def _read_quantize(value: Any) -> Quantization | None:
    scale, zero = (array(argument) for argument in value.args[1:])
    if scale is None or zero is None:
        return None
    # One zero point may go with many scales.
    zeros = np.broadcast_to(zero.reshape(-1), scale.size)
    axis = int(value.attrs.axis) % len(value.args[0].ty.shape) if scale.size > 1 else 0
    return Quantization("", tuple(scale.reshape(-1).tolist()), tuple(map(int, zeros)), axis)
