"""StepBuilder: a stage's values so far, and VTA's steps for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from boards.vta.compiler.layers import Concatenation, MaxPool
from boards.vta.compiler.network import LayerStep
from boards.vta.lowering import constants, rounding
from boards.vta.lowering.values import (
    HALF,
    MemoryTensor,
    TensorCopy,
    TensorPair,
    UnroundedSums,
    Unsupported,
    unbounded_sums,
)


class StepBuilder:
    """Collects steps and the values of variables, for the operators' rules.

    Parameters
    ----------
    inputs : sequence of relax.Var
        Inputs of the stage.
    uses : mapping of relax.Var to int
        Number of reads of each variable.

    Attributes
    ----------
    steps : list of LayerStep
    tensors : list of MemoryTensor
        The stage's inputs.
    """

    def __init__(self, inputs: Sequence[Any], uses: Mapping[Any, int]) -> None:
        self._uses = uses
        self.tensors = [_input(number, var) for number, var in enumerate(inputs)]
        self.steps: list[LayerStep] = []
        self._values: dict[Any, Any] = dict(zip(inputs, self.tensors, strict=True))
        self._shared_tensors: set[int] = set()

    def assign(self, var: Any, value: Any) -> None:
        """Assign a variable's value, shared if it is read twice."""
        self._values[var] = value
        is_copy = isinstance(value, UnroundedSums) and isinstance(value.origin, TensorCopy)
        tensor = value.origin.source if is_copy else value
        if isinstance(tensor, MemoryTensor) and self._uses.get(var, 0) > 1:
            self._shared_tensors.add(tensor.number)

    def tensor(self, var: Any) -> MemoryTensor:
        """Return a variable's tensor in memory, or raise `Unsupported`."""
        value = self._values.get(var)
        if not isinstance(value, MemoryTensor):
            raise Unsupported("its results are not int8")
        return value

    def sums(self, value: Any) -> UnroundedSums:
        """Return a value as sums; bytes are whole numbers."""
        known_value = self._values.get(value)
        if isinstance(known_value, MemoryTensor):
            # Unsigned bytes are signed ones plus 128, which only a dequantisation takes away again.
            if known_value.zero:
                raise Unsupported("it computes with unsigned bytes")
            return unbounded_sums(TensorCopy(known_value), known_value.shape[0], known_value.extents)
        if not isinstance(known_value, UnroundedSums):
            raise Unsupported("it combines constants only")
        return known_value

    def scaled_tensor(self, value: Any) -> tuple[MemoryTensor, float]:
        """Return a value's tensor and unit exponent, or raise `Unsupported`."""
        sums = self.sums(value)
        is_changed = sums.offset.any() or sums.is_clipped or sums.is_floored
        if not isinstance(sums.origin, TensorCopy) or is_changed or np.ptp(sums.exponent):
            raise Unsupported("what it reads is not quantised")
        return sums.origin.source, float(sums.exponent[0])

    def weights(self, value: Any) -> Any:
        """Return constant weights as int8, with exponents per tensor or channel."""
        known_value = self._values.get(value)
        return known_value if isinstance(known_value, constants.ProductWeights) else constants.int8_weights(value)

    def value_of(self, value: Any) -> Any:
        """Return a variable's value, else None."""
        return self._values.get(value)

    def append_step(
        self, layer: Any, sources: tuple[MemoryTensor, ...], extents: tuple[int, ...], zero: int
    ) -> MemoryTensor:
        """Append a step, and return its result."""
        step = LayerStep(layer, tuple(source.number for source in sources))
        self.steps.append(step)
        return MemoryTensor(len(self.tensors) + len(self.steps) - 1, step.outputs, extents, zero)

    def round_sums(self, sums: UnroundedSums, exponent: float, zero: int) -> MemoryTensor:
        """Return sums as bytes in units of 2^exponent."""
        source = sums.origin
        # Bytes in the units that they had before need no layer of their own.
        if isinstance(source, TensorCopy) and not sums.offset.any() and (sums.exponent == exponent).all():
            return self._clip_bytes(sums, source.source, exponent, zero)
        layer = rounding.layer(sums, exponent)
        sources = (source.left, source.right) if isinstance(source, TensorPair) else (source.source,)
        return self.append_step(layer, sources, sums.extents, zero)

    def _clip_bytes(self, sums: UnroundedSums, source: MemoryTensor, exponent: float, zero: int) -> MemoryTensor:
        """Return clipped bytes in unchanged units, clipped by their producer if possible."""
        low, high = rounding.bounds(sums, exponent)
        tensor = replace(source, extents=sums.extents, zero=zero)
        if (low, high) == (-HALF, HALF - 1):
            return tensor
        step_index = source.number - len(self.tensors)
        layer = self.steps[step_index].layer if step_index >= 0 else None
        # An input has no layer, these two have no clipping, and other readers want the tensor as it is.
        if layer is None or isinstance(layer, MaxPool | Concatenation) or source.number in self._shared_tensors:
            return self.append_step(rounding.layer(sums, exponent), (source,), sums.extents, zero)
        limits: dict[str, Any] = {
            "low": int(np.clip(layer.low, low, high)),
            "high": int(np.clip(layer.high, low, high)),
        }
        self.steps[step_index] = replace(self.steps[step_index], layer=replace(layer, **limits))
        return tensor


def _input(number: int, var: Any) -> MemoryTensor:
    try:
        extents = tuple(int(extent) for extent in var.ty.shape)
    except TypeError:
        raise Unsupported("its input has no fixed shape") from None
    zero = {"int8": 0, "uint8": HALF}.get(str(var.ty.dtype))
    if zero is None:
        raise Unsupported(f"its input is {var.ty.dtype}, not int8")
    if not extents or extents[0] != 1 or len(extents) not in (2, 4):
        raise Unsupported(f"its input has the shape {list(extents)}; VTA takes one image, or one row, at a time")
    shape = (extents[1], extents[2], extents[3]) if len(extents) > 2 else (extents[1], 1, 1)
    return MemoryTensor(number, shape, extents, zero)
