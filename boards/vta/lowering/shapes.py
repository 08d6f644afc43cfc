"""Shapes: values under other extents, or concatenated."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from boards.vta.compiler.layers import Concatenation
from boards.vta.lowering.step_builder import StepBuilder
from boards.vta.lowering.values import MemoryTensor, TensorCopy, UnroundedSums, Unsupported, unbounded_sums
from pipeline.errors import BuildError


def reshape(builder: StepBuilder, call: Any) -> Any:
    """Flatten one image to a row, or expand channels by two axes."""
    extents, value = tuple(int(extent) for extent in call.ty.shape), builder.value_of(call.args[0])
    if not isinstance(value, MemoryTensor | UnroundedSums):
        raise Unsupported("it gives constants another shape")
    source_extents = value.extents
    # A row of all values, or the same with axes of one value behind it.
    is_flat = extents[0] == 1 and extents[1] == prod(source_extents) and prod(extents[2:]) == 1
    keeps_channels = isinstance(value, MemoryTensor) or extents[1] == source_extents[1]
    if not (is_flat and keeps_channels) and extents != source_extents:
        raise Unsupported(f"it makes {list(extents)} of {list(source_extents)}")
    return replace(value, extents=extents)


def concat(builder: StepBuilder, call: Any) -> MemoryTensor | UnroundedSums:
    """Concatenate the channels of tensors, each in its own unit."""
    fields, extents = list(call.args[0].fields), tuple(int(extent) for extent in call.ty.shape)
    if int(call.attrs.axis or 0) % len(extents) != 1:
        raise Unsupported("it joins tensors along another axis than that of channels")
    values = [builder.value_of(field) for field in fields]
    are_bytes = all(isinstance(item, MemoryTensor) for item in values)
    operands = [
        (value, 0.0) if are_bytes else builder.scaled_tensor(field) for value, field in zip(values, fields, strict=True)
    ]
    tensors = tuple(tensor for tensor, _ in operands)
    try:
        layer = Concatenation(tuple(tensor.shape for tensor in tensors))
    except BuildError as error:
        raise Unsupported(str(error)) from None
    result = builder.append_step(layer, tensors, extents, tensors[0].zero)
    units = np.repeat([exponent for _, exponent in operands], [tensor.shape[0] for tensor in tensors])
    return result if are_bytes else unbounded_sums(TensorCopy(result), result.shape[0], extents, units)
