"""Builder: collects the Relax bindings that operators are converted to; what is constant is computed at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.split.fold import fold
from pipeline.split.frontends.relay.scalars import DTYPES
from pipeline.split.lines import array, constant, operands

LARGEST_TENSOR = 2**33
"""Bytes; a larger one is taken for a mistake in the program."""

_LARGEST_COMPUTED = 2**26
"""Bytes that a computed constant may always have; a larger one only if its operands are large too."""

_MOST_BINDINGS = 50_000
"""Inlined functions may call each other twice each, and so grow without bound."""


class Builder:
    """Makes variables and constants.

    Attributes
    ----------
    bindings : list of relax.VarBinding
    """

    def __init__(self) -> None:
        self.bindings: list[Any] = []
        self._relax = relax.BlockBuilder()

    def emit(self, call: Any) -> Any:
        """Bind a call of operands that are variables or constants, and return what stands for its result.

        Returns
        -------
        relax.Expr or tuple
            A variable or a constant; a tuple of these for an operator with several results.

        Raises
        ------
        ModelError
            If its result has no fixed shape, or an unreasonable one.
        """
        value = self._relax.normalize(call)
        fields = getattr(value.ty, "fields", [value.ty])
        total = sum(_bytes(each) for each in fields)
        read = list(operands(value))
        if not any(isinstance(each, relax.Var) for each in read):
            _check_computed(total, sum(map(nbytes, read)))
        result = self._bound(value)
        return result if len(fields) == 1 and not hasattr(value.ty, "fields") else self._apart(result, len(fields))

    def _apart(self, result: Any, count: int) -> tuple[Any, ...]:
        return tuple(self._bound(self._relax.normalize(relax.TupleGetItem(result, index))) for index in range(count))

    def _bound(self, value: Any) -> Any:
        if len(self.bindings) >= _MOST_BINDINGS:
            raise ModelError(f"the program unfolds to more than {_MOST_BINDINGS} operators, which is not supported")
        var = relax.Var(f"v{len(self.bindings)}", value.ty)
        binding = relax.VarBinding(var, value)
        lines, known = fold([binding], {var: ""}, {})
        if not lines:
            return known(var)
        self.bindings.append(binding)
        return var

    def constant(self, values: Any, dtype: str | None = None) -> Any:
        """Return a constant."""
        return constant(np.array(values, dtype))

    def filled(self, value: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a constant of one value.

        Raises
        ------
        ModelError
            If the shape is unreasonable.
        """
        if min(shape, default=1) < 1 or math.prod(shape) * np.dtype(dtype).itemsize > _LARGEST_COMPUTED:
            raise ModelError(f"a constant of the shape {shape} is not supported")
        return self.constant(np.full(shape, value), dtype)


def _check_computed(made: int, read: int) -> None:
    if made > max(_LARGEST_COMPUTED, 8 * read):
        raise ModelError(f"a constant of {made} bytes would be computed, which is not supported")


def _bytes(ty: Any) -> int:
    """Return the bytes of a tensor, after checking that its shape is reasonable."""
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        raise ModelError(f"its result has no fixed shape ({ty}), which is not supported")
    extents = tuple(int(extent) for extent in ty.shape)
    total = math.prod(extents) * np.dtype(str(ty.dtype)).itemsize
    if min(extents, default=1) < 1 or total > LARGEST_TENSOR:
        raise ModelError(f"its result would have the shape {extents}, which is not supported")
    return total


def nbytes(constant: Any) -> int:
    """Return the bytes of a constant."""
    found = array(constant)
    return 0 if found is None else found.nbytes


def shape(tensor: Any) -> tuple[int, ...]:
    """Return a tensor's extents.

    Raises
    ------
    ModelError
        If it is no tensor.
    """
    if isinstance(tensor, tuple):
        raise ModelError("a tensor is expected, but this is a tuple")
    return tuple(int(extent) for extent in tensor.ty.shape)


def dtype(tensor: Any) -> str:
    """Return a tensor's dtype.

    Raises
    ------
    ModelError
        If it is no tensor.
    """
    shape(tensor)
    return str(tensor.ty.dtype)


def known(tensor: Any, what: str) -> np.ndarray:
    """Return the values of a constant.

    Raises
    ------
    ModelError
        If `tensor`, described by `what`, depends on an input.
    """
    shape(tensor)
    found = array(tensor)
    if found is None:
        raise ModelError(f"{what} depends on an input, which is not supported; it must be a constant")
    return found


def axis(tensor: Any, number: int) -> int:
    """Return an axis counted from the front.

    Raises
    ------
    ModelError
        If the tensor has no such axis.
    """
    rank = len(shape(tensor))
    if not -rank <= number < rank:
        raise ModelError(f"there is no axis {number} in a tensor of the shape {shape(tensor)}")
    return number % rank


def fields(value: Any) -> tuple[Any, ...]:
    """Return the tensors of a tuple.

    Raises
    ------
    ModelError
        If it is no tuple of tensors, or empty.
    """
    if not isinstance(value, tuple) or not value:
        raise ModelError("a tuple of tensors is expected")
    for each in value:
        shape(each)
    return value


def check_dtype(name: str) -> str:
    """Return a dtype.

    Raises
    ------
    ModelError
        If no tensor can have it.
    """
    if name not in DTYPES:
        raise ModelError(f"dtype {name!r} is not supported; supported are {', '.join(sorted(DTYPES))}")
    return name
