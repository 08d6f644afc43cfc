"""Batched products of two activations: right-hand blocks packed on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import Kernel, epilogue_store
from pipeline.executor.kernels.layout.expressions import TO_LAST, extents
from pipeline.executor.kernels.layout.rewriter import ModelLayout, Rewriter
from pipeline.executor.kernels.matmul import is_float_matmul, matmul_shape
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import amx_layout, amx_matmul, packing, pair_products
from pipeline.executor.kernels.tiles.amx_matmul import AmxMatmulLoops
from pipeline.executor.kernels.tiles.matmul_loops import BatchedMatmulForm, BatchedMatmulLoops, MatrixOperand


class BatchedMatmul(Kernel[BatchedMatmulForm]):
    """Products of two tensors of matrices."""

    name = "batched_matmul"
    operators = frozenset({"matmul"})
    form = BatchedMatmulForm

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Return the placeholder of products of float32 matrices."""
        if not is_float_matmul(call):
            return None
        lhs, lhs_strides = _find_strides(rewriter, call.args[0])
        rhs, rhs_strides = _find_strides(rewriter, call.args[1])
        # A tile's loop over terms steps by one element along the depth of the left matrix.
        if lhs_strides[-1] != 1:
            lhs, lhs_strides = _contiguous(rewriter, call.args[0])
        # Packing loads vectors of the right one, which needs neighbours along its rows or its columns.
        if 1 not in rhs_strides[-2:]:
            rhs, rhs_strides = _contiguous(rewriter, call.args[1])
        shapes = [extents(operand.ty) for operand in call.args]
        *batch, rows, columns = extents(call.ty)
        left, right = _operand(lhs, shapes[0], lhs_strides, batch), _operand(rhs, shapes[1], rhs_strides, batch)
        shape, cpu = matmul_shape(rows, shapes[0][-1], columns), rewriter.cpu
        by_tiles = (cpu.arithmetic, cpu.pairs) == (pair_products.ARITHMETIC, amx_layout.WAY)
        layout = amx_matmul.choose_layout(shape, right, cpu) if by_tiles else None
        form = BatchedMatmulForm(tuple(batch), layout or packing.float_layout(shape, cpu), left, right, shape.depth)
        return ModelLayout(self.placeholder(rewriter.builder, form, [lhs, rhs], extents(call.ty)))

    def write(self, group: FusedGroup, form: BatchedMatmulForm, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over products and their tiles."""
        lhs, rhs = group.operands
        loops = AmxMatmulLoops if form.layout.way == amx_layout.WAY else BatchedMatmulLoops
        return loops(form, cpu, lhs, rhs, epilogue_store(group), tasks).statement()

    def operations(self, form: BatchedMatmulForm) -> int:
        """Count multiplications and additions."""
        return math.prod(form.batch) * form.layout.operations


def _operand(base: Any, shape: Sequence[int], strides: Sequence[int], batch: Sequence[int]) -> MatrixOperand:
    # As NumPy broadcasts: a stride of zero is the same matrix again.
    batch_strides = [0 if extent == 1 else stride for extent, stride in zip(shape[:-2], strides[:-2], strict=True)]
    broadcast = [0] * (len(batch) - len(batch_strides))
    return MatrixOperand(math.prod(extents(base.ty)), (*broadcast, *batch_strides), strides[-2], strides[-1])


def _find_strides(rewriter: Rewriter, value: Any) -> tuple[Any, tuple[int, ...]]:
    """Return a stored tensor and its strides for `value`: transposes need no copy."""
    order = tuple(range(value.ty.ndim))
    while (transpose := rewriter.producer(value, "permute_dims")) is not None:
        axes = transpose.attrs.axes
        turn = [int(axis) % len(order) for axis in axes] if axes is not None else list(range(len(order)))[::-1]
        order, value = tuple(turn[axis] for axis in order), transpose.args[0]
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
