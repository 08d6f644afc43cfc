"""Reductions: sums, means, products, extremes and variances along any axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tvm import relax

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import MEMORY_BOUND, FormT, Kernel, epilogue_store
from pipeline.executor.kernels.layout.expressions import extents, name_of
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.rows import folding, matching
from pipeline.executor.kernels.rows.rows import RowBlock, Rows, loop_over_rows, store_lanes
from pipeline.tvm import statements as tir

_FOLDS = {
    "sum": folding.SUM,
    "mean": folding.SUM,
    "prod": folding.PRODUCT,
    "max": folding.LARGEST,
    "min": folding.SMALLEST,
    "variance": folding.SUM,
}


@dataclass(frozen=True)
class ReductionForm:
    """Reduction of each row to one element."""

    rows: Rows
    kind: str
    """A reduction of Relax."""
    squared: bool
    """True if each element is multiplied by itself first."""
    keeps: bool
    """True if the result has the axes still, with one element."""


class RowForm(Protocol):
    """Form of a kernel with one element per row."""

    @property
    def rows(self) -> Rows:
        """Reduced rows."""

    @property
    def keeps(self) -> bool:
        """True if reduced axes remain, with one element."""


class Reduction(Kernel[ReductionForm]):
    """Reduction along any axes."""

    name = "reduction"
    operators = frozenset(_FOLDS)
    form = ReductionForm
    effort = MEMORY_BOUND

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match a float32 reduction, including squares before sums and means."""
        kind = name_of(call)
        data, is_square = call.args[0], False
        # Norms are exported as sums of squares: in the kernel, the squares are never stored.
        if kind in ("sum", "mean"):
            data, is_square = matching.squared_operand(rewriter, data)
        if not matching.is_float_data(data, call):
            return None
        return reduce_rows(
            self, rewriter, call, data, lambda rows, keeps: ReductionForm(rows, kind, is_square, keeps), ordered=False
        )

    def write(self, group: FusedGroup, form: ReductionForm, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over rows."""
        source, declaration = tir.flat(group.operands[0], "data", form.rows.size)

        def body(block: RowBlock) -> Any:
            statements, totals = fold_rows(form, block, source)
            return tir.sequence([*statements, *store_row_values(form, block, totals, epilogue_store(group))])

        loops = loop_over_rows(form.rows, cpu.lanes, tasks, body, count=folding.REGISTERS)
        return tir.sequence([declaration, loops])

    def operations(self, form: ReductionForm) -> int:
        """Count one operation for each element."""
        return form.rows.size


def reduce_rows(  # noqa: PLR0913 - what a call consists of
    kernel: Kernel[FormT],
    rewriter: Rewriter,
    call: Any,
    data: Any,
    form: Callable[[Rows, bool], FormT],
    *,
    ordered: bool,
) -> Any:
    """Return the placeholder of a row-reducing kernel for a call with the attributes ``axis`` and ``keepdims``.

    `form` makes the kernel's form from the rows, and whether their axes stay; `ordered` says if the order of a row's
    elements matters.
    """
    axis = call.attrs.axis
    axes = matching.axes_of([axis] if isinstance(axis, int) else axis, data.ty.ndim)
    keeps = bool(call.attrs.keepdims)
    # Without the axis of the channels, or with the pixels' axes gone, both layouts have the same order.
    last = rewriter.is_last(data) and (keeps or {2, 3} <= set(axes) or 1 in axes)
    # Positions in a row are counted in the model's order.
    last = last and (len(axes) == 1 or not ordered)
    source, rows = matching.rows_of(rewriter, data, axes, last=last)
    # A reduction along no axis, or of one number, is a copy, which TVM makes as well.
    if not axes or not source.ty.ndim:
        return None
    keeps = keeps or not rows.outer_axes
    result_axes = range(len(rows.shape)) if keeps else rows.outer_axes
    shape = [1 if axis in rows.axes else rows.shape[axis] for axis in result_axes]
    result = kernel.placeholder(rewriter.builder, form(rows, keeps), [source], shape, str(call.ty.dtype))
    # Of everything: the result has no axes, while the kernel's has one element along each.
    if call.ty.ndim != len(shape):
        return relax.op.reshape(rewriter.builder.emit(result), extents(call.ty))
    return matching.in_layout(result, last=last)


def fold_rows(form: ReductionForm, block: RowBlock, source: Any) -> tuple[list[Any], list[Any]]:
    """Return statements, and reduced values per row vector or row."""
    share = tir.constant(1 / form.rows.length, block.result_lanes)
    statements: list[Any] = []
    means: list[Any] = []
    # The mean first: the mean of the squares less the square of the mean would cancel.
    if form.kind == "variance":
        statements, sums = block.fold(folding.SUM, lambda start, size, _: block.read(source, start, size))
        means = [total * share for total in sums]

    def read(offset: Any, size: int, vector: int) -> Any:
        value = block.read(source, offset, size)
        if means:
            value -= block.broadcast(means[vector], size)
        return value * value if means or form.squared else value

    folds, totals = block.fold(_FOLDS[form.kind], read)
    if form.kind in ("mean", "variance"):
        totals = [total * share for total in totals]
    return [*statements, *folds], totals


def store_row_values(form: RowForm, block: RowBlock, values: list[Any], store: Callable[..., Any]) -> list[Any]:
    """Store the values per row vector or row."""
    *indices, column = block.indices or [tir.number(0)]
    if block.rows.contiguous:
        return [store(values[0], *_result_indices(form, block.indices))]
    statements = []
    for number, total in enumerate(values):
        first = column + number * block.lanes

        def store_lane(value: Any, lane: Any, first: Any = first) -> Any:
            return store(value, *_result_indices(form, [*indices, first + lane]))

        statements += store_lanes(total, block.lanes, store_lane)
    return statements


def _result_indices(form: RowForm, indices: list[Any]) -> list[Any]:
    if not form.keeps:
        return indices
    indices_by_axis = dict(zip(form.rows.outer_axes, indices, strict=True))
    return [indices_by_axis.get(axis, tir.number(0)) for axis in range(len(form.rows.shape))]
