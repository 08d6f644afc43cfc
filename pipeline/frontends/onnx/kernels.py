"""Kernels of TVM's ONNX importer as equal Relax operators.

An operator can be fused, folded and scheduled; a kernel comes as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from tvm import relax, topi

from pipeline.model.passes.bindings import array


def _pad(mode: str, data: Any, pad_before: Sequence[int], pad_after: Sequence[int], value: Any = 0.0) -> Any:
    # Opset 11 made the value an input; a constant of it can be an attribute of Relax.
    if (fill := array(value)) is not None:
        value = fill.item()
    # A value that depends on the input stays a kernel, as Relax has no such operator.
    if not isinstance(value, int | float):
        return None
    return relax.op.nn.pad(data, list(chain.from_iterable(zip(pad_before, pad_after, strict=True))), mode, float(value))


def _call_binary(relax_operator: Callable[[Any, Any], Any], data: Any, operand: Any) -> Any:
    return relax_operator(data, relax.const(operand, data.ty.dtype) if isinstance(operand, int | float) else operand)


_OPERATORS: dict[Any, Callable[..., Any]] = {
    topi.maximum: lambda *pair: _call_binary(relax.op.maximum, *pair),
    topi.minimum: lambda *pair: _call_binary(relax.op.minimum, *pair),
    topi.flip: relax.op.flip,
    topi.tile: relax.op.tile,
    topi.einsum: lambda equation, *operands: relax.op.einsum(operands, equation),
    topi.nn.pad: lambda *operands: _pad("constant", *operands),
    # TOPI has REFLECT and SYMMETRIC in capitals, Relax in small letters.
    topi.nn.mirror_pad: lambda data, start, end, mode: _pad(mode.lower(), data, start, end),
    topi.nn.replicate_pad: lambda *operands: _pad("replicate", *operands),
}


def as_operator(kernel: Any, *operands: Any, **options: Any) -> Any:
    """Return the operator call equal to a TE function, or None."""
    return _OPERATORS[kernel](*operands, **options) if kernel in _OPERATORS else None
