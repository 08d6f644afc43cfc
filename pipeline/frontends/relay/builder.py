"""BindingBuilder: Relax bindings of converted operators, constants computed at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.relay.scalars import DTYPES, numbers, plain
from pipeline.model.passes.bindings import array, constant, kernels, operands
from pipeline.model.passes.fold_constants import fold
from pipeline.model.requantization import Requantization

LARGEST_TENSOR = 2**33
"""Bytes; a larger one is taken for a mistake in the program."""

_LARGEST_COMPUTED = 2**26
"""Bytes allowed for any computed constant; a larger one needs large operands."""

MOST_BINDINGS = 50_000
"""Inlined functions may call each other twice each, and so grow without bound."""


class BindingBuilder:
    """Makes variables and constants.

    `kernels` are functions that bindings call, by their global variables; `placements` are devices that the program
    wants for its tensors.
    """

    def __init__(self, most_bindings: int = MOST_BINDINGS) -> None:
        self._most_bindings = most_bindings
        self.bindings: list[Any] = []
        self.placements: list[tuple[Any, str]] = []
        self._read_on: dict[Any, str] = {}
        self.kernels: dict[Any, Any] = {}
        # Used for types and kernels only; bindings are collected apart, as constants among them vanish at once.
        self._relax = relax.BlockBuilder()

    def kernel(self, function: Callable[..., Any], *operands: Any, **options: Any) -> Any:
        """Bind a call of a kernel written by TVM's function; as `emit`."""
        call = self._relax.call_te(function, *operands, primfunc_name_hint=function.__name__, **options)
        self.kernels.update(kernels(self._relax.get()))
        return self.emit(call)

    def requantize(self, x: Any, requantization: Requantization) -> Any:
        """Bind a requantisation; as `emit`."""
        call = requantization.call(self._relax, x)
        self.kernels.update(kernels(self._relax.get()))
        return x if call is x else self.emit(call)

    def emit(self, call: Any) -> Any:
        """Bind a call of variables and constants; return its result.

        Raises `ModelError` if its result has no fixed shape, or an unreasonable one. The result is a tuple for an
        operator with several results.
        """
        value = self._relax.normalize(call)
        fields = getattr(value.ty, "fields", [value.ty])
        total = sum(_bytes(field) for field in fields)
        inputs = list(operands(value))
        # Folding allocates at once: a program of one line could ask for all memory by repeating a constant.
        if not any(isinstance(field, relax.Var) for field in inputs):
            _check_computed(total, sum(map(nbytes, inputs)))
        result = self._bind(value)
        return result if len(fields) == 1 and not hasattr(value.ty, "fields") else self._take_apart(result, len(fields))

    def _take_apart(self, result: Any, count: int) -> tuple[Any, ...]:
        return tuple(self._bind(self._relax.normalize(relax.TupleGetItem(result, index))) for index in range(count))

    def _bind(self, value: Any) -> Any:
        if len(self.bindings) >= self._most_bindings:
            raise ModelError(
                f"the program unfolds to more than {self._most_bindings} operators, which is not supported"
            )
        var = relax.Var(f"v{len(self.bindings)}", value.ty)
        binding = relax.VarBinding(var, value)
        # One by one, so that shapes and indices which follow from constants are known to the next converter.
        unfolded, replacement = fold([binding], {var: ""}, self.kernels)
        if not unfolded:
            return replacement(var)
        self.bindings.append(binding)
        return var

    def place(self, value: Any, device: str) -> None:
        """Place a tensor, or each of a tuple, on a device."""
        self.placements += [(tensor, device) for tensor in _variables(value)]

    def read_on(self, value: Any, device: str) -> Any:
        """Return a tensor or tuple whose readers go to a device."""
        if isinstance(value, tuple):
            return tuple(self.read_on(tensor, device) for tensor in value)
        # A constant has no device: it goes wherever it is read.
        if not isinstance(value, relax.Var):
            return value
        # A second name of the same tensor, as the wish belongs to those who read by way of the annotation only.
        var = relax.Var(f"v{len(self.bindings)}", value.ty)
        self.bindings.append(relax.VarBinding(var, value))
        self._read_on[var] = device
        return var

    def place_by_operands(self, result: Any, operands: Any) -> None:
        """Place a result where its operands are read."""
        for operand in _variables(operands):
            if operand in self._read_on:
                self.place(result, self._read_on[operand])

    def constant(self, values: Any, dtype: str | None = None) -> Any:
        """Return a constant."""
        return constant(np.array(values, dtype))

    def fill(self, value: Any, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a constant of one value; `ModelError` if the shape is unreasonable."""
        if min(shape, default=1) < 1 or math.prod(shape) * np.dtype(dtype).itemsize > _LARGEST_COMPUTED:
            raise ModelError(f"a constant of the shape {shape} is not supported")
        return self.constant(np.full(shape, value), dtype)


def _variables(value: Any) -> Iterator[Any]:
    """Yield the variables of an expression."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from _variables(item)
    elif isinstance(value, relax.Var):
        yield value


def _check_computed(result_bytes: int, operand_bytes: int) -> None:
    if result_bytes > max(_LARGEST_COMPUTED, 8 * operand_bytes):
        raise ModelError(f"a constant of {result_bytes} bytes would be computed, which is not supported")


def _bytes(ty: Any) -> int:
    """Return a tensor's bytes, once its shape is checked."""
    # No stage can be planned without the bytes of its tensors.
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        raise ModelError(f"its result has no fixed shape ({ty}), which is not supported")
    extents = tuple(map(plain, ty.shape))
    # What is symbolic counts as 1.
    total = math.prod(numbers(extents)) * np.dtype(str(ty.dtype)).itemsize
    # An extent of 0 leaves nothing to compute.
    if min(numbers(extents), default=1) < 1 or total > LARGEST_TENSOR:
        raise ModelError(f"its result would have the shape {extents}, which is not supported")
    return total


def nbytes(constant: Any) -> int:
    """Return the bytes of a constant."""
    values = array(constant)
    return 0 if values is None else values.nbytes


def shape(tensor: Any) -> tuple[Any, ...]:
    """Return a tensor's extents, symbolic ones as TVM's expressions; `ModelError` if it is no tensor."""
    if isinstance(tensor, tuple):
        raise ModelError("a tensor is expected, but this is a tuple")
    return tuple(map(plain, tensor.ty.shape))


def dtype(tensor: Any) -> str:
    """Return a tensor's dtype; `ModelError` if it is no tensor."""
    shape(tensor)
    return str(tensor.ty.dtype)


def constant_values(tensor: Any, description: str) -> np.ndarray:
    """Return the values of a constant; `ModelError` if `tensor`, described by `description`, depends on an input."""
    shape(tensor)
    values = array(tensor)
    if values is None:
        raise ModelError(f"{description} depends on an input, which is not supported; it must be a constant")
    return values


def axis(tensor: Any, number: int) -> int:
    """Return an axis counted from the front; `ModelError` if the tensor has no such axis."""
    rank = len(shape(tensor))
    if not -rank <= number < rank:
        raise ModelError(f"there is no axis {number} in a tensor of the shape {shape(tensor)}")
    return number % rank


def fields(value: Any) -> tuple[Any, ...]:
    """Return the tensors of a tuple; `ModelError` if it is no tuple of tensors, or empty."""
    if not isinstance(value, tuple) or not value:
        raise ModelError("a tuple of tensors is expected")
    for tensor in value:
        shape(tensor)
    return value


def check_dtype(name: str) -> str:
    """Return a dtype; `ModelError` if no tensor can have it."""
    if name not in DTYPES:
        raise ModelError(f"dtype {name!r} is not supported; supported are {', '.join(sorted(DTYPES))}")
    return name
