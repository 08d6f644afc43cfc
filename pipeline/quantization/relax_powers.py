"""Powers of two: scales of a quantised Relax model, rounded up.

Zero points go to the middle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from pipeline.core.scale_limits import ScaleLimits
from pipeline.errors import ModelError
from pipeline.model.imported_model import ImportedModel
from pipeline.model.passes.bindings import Binding, array, calls, constant, function, kernels, module, operands
from pipeline.model.passes.bindings import replace as with_operands
from pipeline.model.passes.naming import unique
from pipeline.model.passes.normalise import clean
from pipeline.quantization.powers import LARGEST_WEIGHT, even, next_power, odd

# Where VTA has zero points: its bytes are signed, and unsigned ones are these plus 128.
_MIDDLE = {"int8": 0, "uint8": 128}
_REACH = 128
_BOUNDING = ("nn.relu", "clip", "maximum", "minimum", "reshape", "squeeze", "expand_dims")
"""Operators between sums and their quantisers."""

_MOVERS = ("nn.max_pool2d", "reshape", "permute_dims", "squeeze", "expand_dims")
"""Operators that move bytes, whatever their scale."""


def restrict_scales(model: ImportedModel, limits: ScaleLimits) -> ImportedModel:
    """Return a model with power-of-two scales, its constants adapted.

    Bytes that enter or leave the model keep their scale: they are quantised anew inside. Raises `ModelError` if it
    quantises nothing. The model has quantised tensors between operators on real numbers; it is cleaned up.
    """
    model = clean(model)
    main = model.module["main"]
    source_bindings = [
        Binding(binding.var, str(binding.var.name), binding.value)
        for block in main.body.blocks
        for binding in block.bindings
    ]
    if not any(calls(binding.value, "quantize", "dequantize") for binding in source_bindings):
        raise ModelError(f"model {model.name!r} has no scales that could be rounded to powers of two")
    body = main.body.body
    results = list(body.fields) if isinstance(body, relax.Tuple) else [body]
    restriction = _Restriction(source_bindings, results, {str(param.name) for param in main.params}, limits)
    bindings = [binding for source in source_bindings for binding in restriction.lines(source)]
    inner_names = model.inner_names | {binding.name for binding in bindings} - {
        binding.name for binding in source_bindings
    }
    rewritten = module(function(list(main.params), bindings, results), kernels(model.module))
    variables = [binding.var for block in rewritten["main"].body.blocks for binding in block.bindings]
    names = {var: str(var.name) for var in variables if str(var.name) not in inner_names}
    return replace(model, module=rewritten, inner_names=frozenset(inner_names), names=names)


class _Restriction:
    """State of the restriction: bytes with free scales, and new units."""

    def __init__(self, lines: Sequence[Binding], results: Sequence[Any], inputs: set[str], limits: ScaleLimits) -> None:
        self._limits = limits
        self._readers: dict[Any, list[Binding]] = {}
        for line in lines:
            for operand in operands(line.value):
                self._readers.setdefault(operand, []).append(line)
        self._values = {line.var: line.value for line in lines}
        self._inner_bytes = _inner_bytes(lines, results)
        self._names = {*inputs, *(line.name for line in lines)}
        self._units: dict[Any, Any] = {}

    def lines(self, line: Binding) -> list[Binding]:
        """Return the lines in place of one."""
        if calls(line.value, "quantize"):
            return self._restrict_quantize(line)
        if calls(line.value, "dequantize") and array(line.value.args[0]) is None:
            return self._restrict_dequantize(line)
        if calls(line.value, "nn.conv2d", "matmul"):
            return self._product(line)
        if calls(line.value, "add"):
            self._add(line)
        return [line]

    def _restrict_quantize(self, line: Binding) -> list[Binding]:
        parameters = _restrict_parameters(line.value, str(line.value.attrs.out_dtype))
        if parameters is None:
            return [line]
        if line.var in self._inner_bytes:
            return [
                Binding(
                    line.var,
                    line.name,
                    relax.op.quantize(line.value.args[0], *parameters, **_product_attributes(line.value)),
                )
            ]
        requantization = self._requantize(line, line.value.args[0], parameters, str(line.value.attrs.out_dtype))
        value = with_operands(line.value, _replace_operand(line.value.args[0], requantization[-1].var))
        return [*requantization, Binding(line.var, line.name, value)]

    def _restrict_dequantize(self, line: Binding) -> list[Binding]:
        data, dtype = line.value.args[0], str(line.value.args[0].ty.dtype)
        parameters = _restrict_parameters(line.value, dtype)
        self._units[line.var] = array((parameters or line.value.args[1:])[0])
        if parameters is None:
            return [line]
        # Bytes inside change their scale at both ends; those that cross the border are quantised anew.
        if data in self._inner_bytes:
            return [
                Binding(line.var, line.name, relax.op.dequantize(data, *parameters, **_product_attributes(line.value)))
            ]
        first = self._line(f"{line.name}:given", line.value, line.var.ty)
        *requantization, last = [first, *self._requantize(line, first.var, parameters, dtype)]
        return [*requantization, Binding(line.var, line.name, last.value)]

    def _requantize(self, line: Binding, value: Any, scales: Sequence[Any], dtype: str) -> list[Binding]:
        """Return lines that quantise real numbers and dequantise them again."""
        quantize = relax.op.quantize(value, *scales, axis=0, out_dtype=dtype)
        bytes_ = self._line(f"{line.name}:restricted", quantize, relax.TensorType(value.ty.shape, dtype))
        back = relax.op.dequantize(bytes_.var, *scales, axis=0, out_dtype="float32")
        return [bytes_, self._line(f"{line.name}:back", back, value.ty)]

    def _line(self, name: str, value: Any, ty: Any) -> Binding:
        name = unique(name, self._names)
        return Binding(relax.Var(name, ty), name, value)

    def _product(self, line: Binding) -> list[Binding]:
        """Give constant weights scales for each channel of results."""
        data, weights = line.value.args
        unit, values = self._units.get(data), self._weights(weights)
        if unit is None or values is None or (axis := _channels(line.value, values)) is None:
            return [line]
        scale = np.exp2(self._exponents(line, values, axis, float(np.log2(unit.max()))))
        real_weights = relax.op.dequantize(
            constant(even(values, scale, axis)),
            constant(scale.astype(np.float32)),
            constant(np.zeros(len(scale), np.int8)),
            axis=axis,
            out_dtype="float32",
        )
        weights_binding = self._line(f"{line.name}:weights", real_weights, relax.TensorType(values.shape, "float32"))
        value = with_operands(line.value, _replace_operand(weights, weights_binding.var))
        # Of each channel's sums; the bias that follows is a whole number of them.
        self._units[line.var] = unit * scale
        return [weights_binding, Binding(line.var, line.name, value)]

    def _exponents(self, line: Binding, values: np.ndarray, axis: int, source: float) -> np.ndarray:
        """Return the exponents of weights' scales, within the limits."""
        axes = tuple(number for number in range(values.ndim) if number != axis)
        # A channel of zeros has the exponent -inf, which the limits replace.
        with np.errstate(divide="ignore"):
            natural = np.log2(next_power(np.abs(values).max(axes) / LARGEST_WEIGHT))
        results: list[float] = []
        biases: list[np.ndarray] = []
        self._collect_ends(line.var, results, biases)
        channel_biases = [np.abs(channel_bias) for channel_bias in biases if channel_bias.size in (1, len(natural))]
        bias = (
            np.maximum.reduce(np.broadcast_arrays(np.zeros_like(natural), *channel_biases)) if channel_biases else None
        )
        # Each result is a sum of as many products as its channel has weights.
        terms = values.size // values.shape[axis]
        return self._limits.weight_exponents(natural, source, max(results, default=None), bias, terms)

    def _collect_ends(self, sums: Any, results: list[float], biases: list[np.ndarray]) -> None:
        """Collect exponents of quantised sums, and constants added before."""
        for line in self._readers.get(sums, ()):
            if calls(line.value, "quantize"):
                scale = array(
                    (_restrict_parameters(line.value, str(line.value.attrs.out_dtype)) or line.value.args[1:])[0]
                )
                results += [] if scale is None or scale.size != 1 else [float(np.log2(scale.item()))]
            elif calls(line.value, "add"):
                constants = [values for operand in line.value.args if (values := array(operand)) is not None]
                biases += [operand.astype(np.float64).reshape(-1) for operand in constants]
                if constants:
                    self._collect_ends(line.var, results, biases)
            elif calls(line.value, *_BOUNDING):
                self._collect_ends(line.var, results, biases)

    def _weights(self, value: Any) -> np.ndarray | None:
        maker: Any = self._values.get(value)
        if not calls(maker, "dequantize"):
            numbers = array(value)
            return None if numbers is None else numbers.astype(np.float64)
        values, scale, zero = (array(parameter) for parameter in maker.args)
        if values is None or scale is None or zero is None:
            return None
        shape = [1] * values.ndim
        if max(scale.size, zero.size) > 1:
            # Along the axis of its channels, and broadcast over all others.
            shape[int(maker.attrs.axis)] = -1
        scale, zero = (
            parameter.astype(np.float64).reshape(shape if parameter.size > 1 else ()) for parameter in (scale, zero)
        )
        return (values.astype(np.float64) - zero) * scale

    def _add(self, line: Binding) -> None:
        """Give a bias the unit of its sums."""
        # Either operand may be the bias.
        for product, bias in (line.value.args, line.value.args[::-1]):
            unit, values = self._units.get(product), array(bias)
            if unit is None or values is None or not calls(self._values[product], "nn.conv2d", "matmul"):
                continue
            if values.size == len(unit):
                numbers = odd(values.astype(np.float64).reshape(-1), unit) * unit
                new_bias = constant(numbers.astype(np.float32).reshape(values.shape))
                line.value = with_operands(line.value, _replace_operand(bias, new_bias))


def _replace_operand(operand: Any, replacement: Any) -> Callable[[Any], Any]:
    return lambda candidate: replacement if candidate.same_as(operand) else candidate


def _product_attributes(value: Any) -> dict[str, Any]:
    return {"axis": int(value.attrs.axis), "out_dtype": str(value.attrs.out_dtype)}


def _channels(product: Any, weights: np.ndarray) -> int | None:
    """Return the channel axis of weights."""
    if calls(product, "matmul"):
        return 1 if weights.ndim == 2 else None
    return str(product.attrs.kernel_layout).index("O")


def _restrict_parameters(value: Any, dtype: str) -> tuple[Any, Any] | None:
    """Return new scale and zero point; None keeps the old ones."""
    scale, zero = array(value.args[1]), array(value.args[2])
    if dtype not in _MIDDLE or scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    limits = np.iinfo(dtype)
    # The zero point moves to the middle, so that the range has to grow to reach the farther end as before.
    reach = max(int(zero.item()) - limits.min, limits.max - int(zero.item()), _REACH)
    new_scale = next_power(np.float64(scale.item()) * reach / _REACH)
    if new_scale == scale.item() and zero.item() == _MIDDLE[dtype]:
        return None
    return constant(np.array(new_scale, np.float32)), constant(np.array(_MIDDLE[dtype], dtype))


def _inner_bytes(lines: Sequence[Binding], results: Iterable[Any]) -> set[Any]:
    """Return the bytes quantised and dequantised inside the model.

    Bytes that are only moved in between are among them.
    """
    values: Mapping[Any, Any] = {line.var: line.value for line in lines}
    inner_bytes = {var for var, value in values.items() if calls(value, "quantize", *_MOVERS)} - set(results)
    # Until nothing changes: bytes that leave take those along that only moved to or from them.
    shrinking = True
    while shrinking:
        size = len(inner_bytes)
        for var, value in values.items():
            sources = {operand for operand in operands(value) if operand in values}
            if calls(value, *_MOVERS) and (var not in inner_bytes or not sources <= inner_bytes):
                inner_bytes -= {var, *sources}
            elif not calls(value, "dequantize"):
                inner_bytes -= sources
        shrinking = len(inner_bytes) < size
    return inner_bytes
