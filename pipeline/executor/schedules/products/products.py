"""Products: matrix multiplications, of data by weights that are packed beforehand, or of data by data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.ir import GenericConst

from pipeline.executor.schedules import anchors
from pipeline.executor.schedules.layout.rewriter import Plain, Rewriter
from pipeline.executor.schedules.layout.values import TO_LAST, constant, extents, is_static
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.tiled import packing
from pipeline.executor.schedules.tiled.tiles import Window


@dataclass(frozen=True)
class Operand:
    """Where one matrix of each product is in its buffer, in elements.

    Attributes
    ----------
    size : int
        Of the whole buffer.
    batch : tuple of int
        From one product to the next, along each axis of the batch; 0 where all of them share the matrix.
    row, column : int
        From one to the next.
    """

    size: int
    batch: tuple[int, ...]
    row: int
    column: int


@dataclass(frozen=True)
class Product:
    """Matrices of rows x depth times depth x columns."""

    batch: tuple[int, ...]
    form: packing.Layout
    left: Operand
    right: Operand

    @property
    def operations(self) -> int:
        """Multiplications and additions."""
        return math.prod(self.batch) * self.form.window.operations


def window(rows: int, depth: int, columns: int) -> Window:
    """Return a product as a convolution: each row of the data is a pixel."""
    return Window(1, rows, 1, depth, rows, 1, columns, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0))


def product(rewriter: Rewriter, call: Any, *, machine: Machine) -> Any:
    """Return the value of a ``matmul``, or None if it is not one of float32 matrices of known shape."""
    left, right = call.args
    if not is_static(left, right, call) or any(str(each.ty.dtype) != "float32" for each in (left, right, call)):
        return None
    if min(left.ty.ndim, right.ty.ndim) < 2 or 0 in (*extents(left.ty), *extents(right.ty)):
        return None
    if isinstance(right, GenericConst) and right.ty.ndim == 2:
        return Plain(_by_weights(rewriter, call, machine))
    return Plain(_by_data(rewriter, call, machine))


def _by_weights(rewriter: Rewriter, call: Any, machine: Machine) -> Any:
    data, weights = call.args
    *outer, depth = extents(data.ty)
    columns = extents(weights.ty)[1]
    rule, form = packing.chosen("dense", window(math.prod(outer), depth, columns), machine)
    packed = packing.pack(np.asarray(weights.value.numpy()).T.reshape(columns, depth, 1, 1), form)
    packed = packing.stored(packed, machine)
    operands = [rewriter.plain(data), constant(packed)]
    return anchors.stand_in(rewriter.builder, rule, form, operands, (*outer, columns))


def _by_data(rewriter: Rewriter, call: Any, machine: Machine) -> Any:
    shape = extents(call.ty)
    left, left_strides = _strided(rewriter, call.args[0])
    right, right_strides = _strided(rewriter, call.args[1])
    if left_strides[-1] != 1:
        left, left_strides = _contiguous(rewriter, call.args[0])
    if 1 not in right_strides[-2:]:
        right, right_strides = _contiguous(rewriter, call.args[1])
    *batch, rows, columns = shape
    form = packing.layout(window(rows, extents(call.args[0].ty)[-1], columns), machine)
    detail = Product(
        tuple(batch),
        form,
        _operand(left, extents(call.args[0].ty), left_strides, batch),
        _operand(right, extents(call.args[1].ty), right_strides, batch),
    )
    return anchors.stand_in(rewriter.builder, "product", detail, [left, right], shape)


def _operand(base: Any, shape: Sequence[int], strides: Sequence[int], batch: Sequence[int]) -> Operand:
    own = [0 if extent == 1 else stride for extent, stride in zip(shape[:-2], strides[:-2], strict=True)]
    missing = [0] * (len(batch) - len(own))
    return Operand(math.prod(extents(base.ty)), (*missing, *own), strides[-2], strides[-1])


def _strided(rewriter: Rewriter, value: Any) -> tuple[Any, tuple[int, ...]]:
    """Return a tensor that is in memory, and the strides by which it is `value`: transposing need not move it."""
    order = tuple(range(value.ty.ndim))
    while (turned := rewriter.made_by(value, "permute_dims")) is not None:
        axes = turned.attrs.axes
        turn = [int(axis) % len(order) for axis in axes] if axes is not None else list(range(len(order)))[::-1]
        order, value = tuple(turn[axis] for axis in order), turned.args[0]
    if rewriter.is_last(value):
        base = rewriter.last(value)
        order = tuple(TO_LAST.index(axis) for axis in order)
    else:
        base = rewriter.plain(value)
    strides = _strides(extents(base.ty))
    return base, tuple(strides[axis] for axis in order)


def _contiguous(rewriter: Rewriter, value: Any) -> tuple[Any, tuple[int, ...]]:
    return rewriter.plain(value), _strides(extents(value.ty))


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
