"""The constants of a stage: scales, powers of two, numbers per channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.lowering.values import Numbers, Unsupported

_AXIS = 1
_REMEDY = "`soc-pipeline quantize --power-of-two` changes it"


def array(value: Any) -> npt.NDArray[Any] | None:
    """Return the array behind a constant; None for anything else."""
    from tvm.ir import GenericConst

    return np.asarray(value.value.numpy()) if isinstance(value, GenericConst) else None


def exponents(scales: npt.NDArray[Any]) -> Numbers:
    """Return the logarithms of scales.

    Raises
    ------
    Unsupported
        If one is no power of two.
    """
    fraction, exponent = np.frexp(scales.astype(np.float64))
    if (fraction != 0.5).any():
        wrong = float(scales.reshape(-1)[(fraction != 0.5).reshape(-1).argmax()])
        raise Unsupported(f"its scale {wrong:.6g} is no power of two; {_REMEDY}")
    return (exponent - 1).astype(np.float64)


def exponent(scale: Any) -> float:
    """Return the logarithm of the one scale of a tensor."""
    found = array(scale)
    if found is None or found.size != 1:
        raise Unsupported("the scale of a tensor is no single constant")
    return float(exponents(found).reshape(-1)[0])


def zero_point(value: Any, dtype: str) -> int:
    """Return the zero point of a tensor, after checking that VTA can have it: 0 of int8, 128 of uint8."""
    found, wanted = array(value), {"int8": 0, "uint8": 128}.get(dtype)
    if wanted is None:
        raise Unsupported(f"it has values of {dtype}; VTA has int8")
    if found is None or (found != wanted).any():
        given = "no constant" if found is None else int(found.reshape(-1)[0])
        raise Unsupported(f"the zero point of {dtype} is {given}; for VTA it must be {wanted}; {_REMEDY}")
    return wanted


def per_channel(value: Any, extents: tuple[int, ...], channels: int) -> Numbers | None:
    """Return a constant as one number for each channel of a tensor; None if it is none.

    Raises
    ------
    Unsupported
        If it varies along other axes.
    """
    found = array(value)
    if found is None:
        return None
    if extents[_AXIS] != channels and found.size > 1:
        raise Unsupported("it combines a flattened image with many constants")
    shape = (1,) * (len(extents) - found.ndim) + found.shape
    others = [extent for axis, extent in enumerate(shape) if axis != _AXIS]
    if len(shape) > len(extents) or max(others, default=1) > 1 or shape[_AXIS] not in (1, channels):
        raise Unsupported("it combines a tensor with a constant that varies inside a channel")
    numbers: Numbers = np.resize(found.astype(np.float64), channels)
    return numbers
