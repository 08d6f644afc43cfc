"""Matrix multiplication by packed constant weights, also of bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm.ir import GenericConst

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import Kernel
from pipeline.executor.kernels.layout.expressions import constant, extents, is_static
from pipeline.executor.kernels.layout.rewriter import ModelLayout, Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import packing
from pipeline.executor.kernels.tiles.amx_loops import loops_of
from pipeline.executor.kernels.tiles.conv_loops import TileEpilogue
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.executor.kernels.tiles.packing import PackedLayout
from pipeline.tvm import statements as tir


class Matmul(Kernel[PackedLayout]):
    """Product by a constant matrix: a convolution with rows as pixels."""

    name = "dense"
    operators = frozenset({"matmul"})
    form = PackedLayout

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match a product by a constant matrix."""
        data, weights = call.args
        # A constant of more axes has a matrix for each product, which batched products take.
        if not is_float_matmul(call) or not isinstance(weights, GenericConst) or weights.ty.ndim != 2:
            return None
        *outer_shape, depth = extents(data.ty)
        columns = extents(weights.ty)[1]
        form, is_tuned = packing.choose_layout(matmul_shape(math.prod(outer_shape), depth, columns), rewriter.cpu)
        matrix = np.asarray(weights.value.numpy()).T.reshape(columns, depth, 1, 1)
        packed_weights = packing.store_weights(packing.pack(matrix, form), rewriter.cpu)
        operands = [rewriter.plain(data), constant(packed_weights)]
        return ModelLayout(self.placeholder(rewriter.builder, form, operands, (*outer_shape, columns), tuned=is_tuned))

    def write(self, group: FusedGroup, form: PackedLayout, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over tiles of rows and columns."""
        outer_shape = [int(extent) for extent in group.target.shape[:-1]]
        pixelwise = group.is_pixelwise()

        def store(total: Any, _image: Any, row: Any, _w: Any, c: Any) -> Any:
            # Rows lie side by side, so that counting on beyond an axis' end finds the next ones.
            position = [tir.number(0)] * (len(outer_shape) - 1) + [row] if pixelwise else tir.unravel(row, outer_shape)
            return group.store(total, (*position, c))

        data, weights = group.operands
        epilogue = TileEpilogue(store, is_long=group.is_long)
        return loops_of(form)(form, cpu, data, weights, epilogue, tasks).statement()

    def operations(self, form: PackedLayout) -> int:
        """Count multiplications and additions."""
        return form.operations


def is_float_matmul(call: Any) -> bool:
    """Test for a ``matmul`` of static, non-empty float32 matrices."""
    operands = call.args
    if not is_static(*operands, call) or any(str(value.ty.dtype) != "float32" for value in (*operands, call)):
        return False
    shapes = [extents(operand.ty) for operand in operands]
    return min(map(len, shapes)) >= 2 and all(0 not in shape for shape in shapes)


def matmul_shape(rows: int, depth: int, columns: int) -> ConvShape:
    """Return a product as a convolution with rows as pixels."""
    return ConvShape(1, rows, 1, depth, rows, 1, columns, (1, 1), (1, 1), (1, 1), (0, 0, 0, 0))
