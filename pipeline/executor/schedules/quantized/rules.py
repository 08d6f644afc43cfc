"""Quantised operators: convolutions and products of bytes, with what is quantised after them fused in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst

from pipeline.executor.schedules.layout.rewriter import Plain, Rewriter, Rule
from pipeline.executor.schedules.layout.values import is_image
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.quantized import integers, steps
from pipeline.executor.schedules.quantized.integers import Summed
from pipeline.executor.schedules.quantized.steps import scale_of


def for_layout(machine: Machine, others: dict[str, Rule]) -> dict[str, Rule]:
    """Return rules for quantised operators, which leave everything else to the `others`."""
    own = _Quantized(machine, others)
    return {
        **others,
        "nn.conv2d": lambda rewriter, call: own.product(rewriter, call, "nn.conv2d"),
        "matmul": lambda rewriter, call: own.product(rewriter, call, "matmul"),
        "quantize": own.quantize,
        "dequantize": own.dequantize,
    }


@dataclass(frozen=True)
class _Chain:
    """A product that is quantised: its sums, the bias in their unit, and whether negative values become zero."""

    summed: Summed
    bias: np.ndarray
    rectified: bool


class _Quantized:
    """The rules of one stage, and the sums that they have made so far."""

    def __init__(self, machine: Machine, others: dict[str, Rule]) -> None:
        self._machine, self._others = machine, others
        self._sums: dict[Any, Summed] = {}

    def product(self, rewriter: Rewriter, call: Any, name: str) -> Any:
        """Return a convolution or product of two quantised operands."""
        operands = [rewriter.made_by(each, "dequantize") for each in call.args]
        known = all(each is not None for each in operands)
        summed = integers.summed(rewriter, call, operands, self._machine) if known else None
        if summed is not None:
            self._sums[call] = summed
            return _placed(summed, steps.scaled(rewriter.builder, summed.sums, summed.correction, summed.scales))
        other = self._others.get(name)
        weights = operands[1] if len(operands) > 1 else None
        if weights is not None and not isinstance(weights.args[0], relax.Var):
            numbers = relax.const(integers.numbers(weights))
            call = rewriter.builder.normalize(Call(call.op, [call.args[0], numbers], call.attrs, call.ty_args))
        return other(rewriter, call) if other else None

    def quantize(self, rewriter: Rewriter, call: Any) -> Any:
        """Quantise: the sums of a product where there is nothing else in between, else any values."""
        scale = scale_of(call)
        if scale is None:
            return None
        data = call.args[0]
        chain = self._chain(rewriter, data)
        if chain is not None:
            summed = chain.summed
            bias = summed.correction + chain.bias
            factors = summed.scales / np.float64(scale.value)
            made = steps.requantized(rewriter.builder, summed.sums, (bias, factors), scale, rectified=chain.rectified)
            return _placed(summed, made)
        return _in_layout(rewriter, data, lambda each: steps.quantized(rewriter.builder, each, scale))

    @staticmethod
    def dequantize(rewriter: Rewriter, call: Any) -> Any:
        """Return the numbers that bytes stand for."""
        scale = scale_of(call)
        data = call.args[0]
        if scale is None or not isinstance(data, relax.Var) or str(call.attrs.out_dtype) != "float32":
            return None
        return _in_layout(rewriter, data, lambda each: steps.dequantized(rewriter.builder, each, scale))

    def _chain(self, rewriter: Rewriter, data: Any) -> _Chain | None:
        rectified = rewriter.made_by(data, "nn.relu")
        value = rectified.args[0] if rectified is not None else data
        added = rewriter.made_by(value, "add")
        product = rewriter.made_by(added.args[0] if added is not None else value, "nn.conv2d", "matmul")
        summed = None if product is None else self._sums.get(product)
        if summed is None:
            return None
        bias = np.zeros(1, np.int64) if added is None else _in_units(added.args[1], summed)
        return None if bias is None else _Chain(summed, bias, rectified is not None)


def _in_units(value: Any, summed: Summed) -> np.ndarray | None:
    """Return a bias as a number of the sums' units for each output channel, if it is one but for rounding."""
    if not isinstance(value, GenericConst):
        return None
    array = np.asarray(value.value.numpy(), np.float64)
    if array.size != 1 and (array.ndim < -summed.axis or array.shape[summed.axis] != array.size):
        return None
    units = array.reshape(-1) / summed.scales
    whole = np.rint(units)
    if np.any(np.abs(units - whole) > 1e-3 + 1e-6 * np.abs(units)) or np.any(np.abs(whole) >= 1 << 30):
        return None
    found: np.ndarray = whole.astype(np.int64)
    return found


def _placed(summed: Summed, made: Any) -> Any:
    return summed.images.result(made) if summed.images else made


def _in_layout(rewriter: Rewriter, data: Any, make: Any) -> Any:
    """Return what is made of a value, where it is an image with channels last, so that its readers need not turn it."""
    if is_image(data.ty) and (rewriter.is_last(data) or (rewriter.turns and not isinstance(data, relax.DataflowVar))):
        return make(rewriter.last(data))
    made = make(rewriter.plain(data))
    return Plain(made) if is_image(data.ty) else made
