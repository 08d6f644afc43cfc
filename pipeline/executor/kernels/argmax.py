"""Argmax and argmin: first position of every row's extreme."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import MEMORY_BOUND, Kernel, epilogue_store
from pipeline.executor.kernels.layout.expressions import extents, is_static, name_of
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.reductions import reduce_rows, store_row_values
from pipeline.executor.kernels.rows import folding, matching
from pipeline.executor.kernels.rows.folding import Fold
from pipeline.executor.kernels.rows.rows import RowBlock, Rows, loop_over_rows
from pipeline.tvm import statements as tir

_FOLDS = {"argmax": folding.LARGEST, "argmin": folding.SMALLEST}
_DTYPES = {"float32", "float64", "int8", "uint8", "int32", "int64"}

LONGEST = 1 << 24
"""Longest row with positions exact in float32, for vector comparison."""


@dataclass(frozen=True)
class ArgmaxForm:
    """Rows, ``"argmax"`` or ``"argmin"``, and whether reduced axes remain."""

    rows: Rows
    kind: str
    keeps: bool


class Argmax(Kernel[ArgmaxForm]):
    """Position of an extreme along one axis, or all.

    `longest`: elements of the longest row that is taken.
    """

    name = "argmax"
    operators = frozenset(_FOLDS)
    form = ArgmaxForm
    effort = MEMORY_BOUND

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match an argmax over short enough rows."""
        data, kind, axis = call.args[0], name_of(call), call.attrs.axis
        if not isinstance(data, relax.Var) or not is_static(data, call) or str(data.ty.dtype) not in _DTYPES:
            return None
        axes = matching.axes_of(None if axis is None else [axis], data.ty.ndim)
        shape = extents(data.ty)
        if 0 in shape or math.prod(shape[axis] for axis in axes) > self._longest:
            return None
        return reduce_rows(self, rewriter, call, data, lambda rows, keeps: ArgmaxForm(rows, kind, keeps), ordered=True)

    def write(self, group: FusedGroup, form: ArgmaxForm, cpu: Microarchitecture, tasks: int) -> Any:
        """Loop over rows twice: for the extreme, then its position."""
        data, store = group.operands[0], epilogue_store(group)
        source, declaration = tir.flat(data, "data", form.rows.size, str(data.dtype))

        def store_position(position: Any, *indices: Any) -> Any:
            return store(position.astype("int64"), *indices)

        def body(block: RowBlock) -> Any:
            statements, positions = _find_extremes(form, block, source)
            return tir.sequence([*statements, *store_row_values(form, block, positions, store_position)])

        loops = loop_over_rows(form.rows, cpu.lanes, tasks, body, count=folding.REGISTERS)
        return tir.sequence([declaration, loops])

    def operations(self, form: ArgmaxForm) -> int:
        """Count two comparisons for each element."""
        return form.rows.size * 2


def _find_extremes(form: ArgmaxForm, block: RowBlock, source: Any) -> tuple[list[Any], list[Any]]:
    """Return statements, and every row's extreme position as float32."""
    fold = _fold(form.kind, str(source.dtype))
    extreme_statements, extremes = block.fold(fold, lambda start, size, _: block.read(source, start, size))

    def position(offset: Any, size: int, vector: int) -> Any:
        equal = tirx.EQ(block.read(source, offset, size), block.broadcast(extremes[vector], size))
        # Infinite elsewhere, so that the smallest position is the first extreme.
        return tirx.Select(equal, _positions(block, offset, size), tir.constant(float("inf"), size))

    statements, positions = block.fold(folding.SMALLEST, position)
    return [*extreme_statements, *statements], [
        _unless_nan_first(block, source, value, vector) for vector, value in enumerate(positions)
    ]


def _fold(kind: str, dtype: str) -> Fold:
    """Return the fold to a dtype's maximum or minimum."""
    fold = _FOLDS[kind]
    if dtype.startswith("float"):
        return fold._replace(dtype=dtype)
    # Integers have no infinity; their own limits change nothing either.
    limits = np.iinfo(dtype)
    return fold._replace(dtype=dtype, neutral=int(limits.min if kind == "argmax" else limits.max))


def _positions(block: RowBlock, offset: Any, size: int) -> Any:
    """Return the row positions of elements at an offset."""
    ((_, stride),) = block.rows.runs
    # Lanes are different rows, at one position.
    if not block.rows.contiguous:
        return tir.wide((offset // stride).astype("float32"), size)
    first = offset.astype("int32")
    positions = first if size == 1 else tirx.Ramp(first, tirx.IntImm("int32", 1), size)
    return positions.astype(tir.lanewise("float32", size))


def _unless_nan_first(block: RowBlock, source: Any, position: Any, vector: int) -> Any:
    """Return a position, or the first for rows starting with NaN."""
    if not str(source.dtype).startswith("float"):
        return position
    first = block.read(source, tir.number(vector * block.lanes), block.result_lanes)
    minimum = tir.wide(tirx.const(float("-inf"), str(source.dtype)), block.result_lanes)
    # NaN alone is not at least minus infinity.
    return tirx.Select(first >= minimum, position, tir.constant(0.0, block.result_lanes))
