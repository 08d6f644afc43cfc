"""Layer normalization: standardise rows, then scale and shift elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import MEMORY_BOUND, Kernel, epilogue_store
from pipeline.executor.kernels.layout.expressions import extents, name_of
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.reductions import ReductionForm, fold_rows
from pipeline.executor.kernels.rows import folding, matching
from pipeline.executor.kernels.rows.rows import RowBlock, Rows, bind_once, loop_over_rows, store_elements
from pipeline.tvm import statements as tir


@dataclass(frozen=True)
class LayerNormForm:
    """Rows, epsilon, and presence of scale and shift."""

    rows: Rows
    epsilon: float
    scaled: bool
    shifted: bool


class LayerNorm(Kernel[LayerNormForm]):
    """Layer normalization, as one operator or taken apart."""

    name = "layer_norm"
    operators = frozenset({"nn.layer_norm", "divide"})
    form = LayerNormForm
    effort = MEMORY_BOUND

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match ``layer_norm``, or the final division of a decomposed one."""
        if name_of(call) == "divide":
            return self._match_standardization(rewriter, call)
        data, *parameters = call.args
        attrs = call.attrs
        if not matching.is_float_data(data, call, *parameters):
            return None
        axes = matching.axes_of(attrs.axes, data.ty.ndim)
        flags = bool(attrs.scale), bool(attrs.center)
        operands = [parameter for parameter, flag in zip(parameters, flags, strict=True) if flag]
        return self._normalize(rewriter, data, axes, (float(attrs.epsilon), *flags), operands)

    def _match_standardization(self, rewriter: Rewriter, call: Any) -> Any:
        """Match ``(x - mean) / sqrt(variance + epsilon)`` by its division."""
        # From the division back; exporters that know no such operator write it so.
        root = rewriter.producer(call.args[1], "sqrt")
        total = None if root is None else rewriter.producer(root.args[0], "add")
        difference = rewriter.producer(call.args[0], "subtract")
        if total is None or difference is None or (epsilon := matching.constant_number(total.args[1])) is None:
            return None
        data, mean = difference.args[0], rewriter.producer(difference.args[1], "mean")
        variance = _variance_of(rewriter, total.args[0], call.args[0])
        if mean is None or variance is None or not isinstance(data, relax.Var) or not mean.args[0].same_as(data):
            return None
        if not matching.is_float_data(data, call) or not (mean.attrs.keepdims and variance.attrs.keepdims):
            return None
        axes = matching.axes_of(mean.attrs.axis, data.ty.ndim)
        of_data = name_of(variance) == "mean" or variance.args[0].same_as(data)
        if axes != matching.axes_of(variance.attrs.axis, data.ty.ndim) or not of_data:
            return None
        return self._normalize(rewriter, data, axes, (epsilon, False, False), [])

    def _normalize(
        self,
        rewriter: Rewriter,
        data: Any,
        axes: tuple[int, ...],
        details: tuple[float, bool, bool],
        parameters: list[Any],
    ) -> Any:
        # A parameter for each element of several axes has those in the model's order.
        last = rewriter.is_last(data) and (len(axes) == 1 or not parameters)
        source, rows = matching.rows_of(rewriter, data, axes, last=last)
        # A row is one loop, and scale and shift have a value for each step of it.
        if len(rows.runs) != 1 or any(math.prod(extents(value.ty)) != rows.length for value in parameters):
            return None
        operands = [source, *(rewriter.plain(value) for value in parameters)]
        result = self.placeholder(rewriter.builder, LayerNormForm(rows, *details), operands, rows.shape)
        return matching.in_layout(result, last=last)

    def write(self, group: FusedGroup, form: LayerNormForm, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over rows."""
        sizes = [form.rows.size, form.rows.length, form.rows.length]
        # Not strict: a scale and a shift are there or not, in this order.
        views = [tir.flat(operand, "view", size) for operand, size in zip(group.operands, sizes, strict=False)]
        source, *parameters = [view for view, _ in views]
        row = _LayerNormRow(form, source, parameters, epilogue_store(group))
        loops = loop_over_rows(form.rows, cpu.lanes, tasks, row.statement, count=1)
        return tir.sequence([*(declaration for _, declaration in views), loops])

    def operations(self, form: LayerNormForm) -> int:
        """Count the operations of both passes and scaling."""
        return form.rows.size * 8


class _LayerNormRow:
    """Writes one row, or a vector of rows."""

    def __init__(self, form: LayerNormForm, source: Any, parameters: Sequence[Any], store: Callable[..., Any]) -> None:
        self._form, self._source, self._store = form, source, store
        self._scale = parameters[0] if form.scaled else None
        self._shift = parameters[-1] if form.shifted else None

    def statement(self, block: RowBlock) -> Any:
        """Return the statement."""
        statements, mean, factor = bind_moments(block, self._source, self._form.epsilon)

        def element(offset: Any, size: int) -> Any:
            value = block.read(self._source, offset, size) - block.broadcast(mean, size)
            return self._adjust(block, value * block.broadcast(factor, size), offset, size)

        return tir.sequence([*statements, store_elements(block, element, self._store)])

    def _adjust(self, block: RowBlock, value: Any, offset: Any, size: int) -> Any:
        if self._scale is not None:
            value *= self._parameter(block, self._scale, offset, size)
        return value if self._shift is None else value + self._parameter(block, self._shift, offset, size)

    @staticmethod
    def _parameter(block: RowBlock, parameter: Any, offset: Any, size: int) -> Any:
        if block.rows.contiguous:
            return tir.load(parameter, tir.span(offset, size))
        number = tir.load(parameter, offset // block.rows.runs[-1].stride)
        return number if size == 1 else tir.vector(number, size)


def bind_moments(block: RowBlock, source: Any, epsilon: float) -> tuple[list[Any], Any, Any]:
    """Compute a row's mean and inverse standard deviation as variables."""
    form = ReductionForm(block.rows, "mean", False, True)
    mean_statements, (mean,) = fold_rows(form, block, source)
    mean_statements, mean = bind_once(mean_statements, mean, block)

    # The mean of the squares less the square of the mean would cancel where the mean is large.
    def square(offset: Any, size: int, _: int) -> Any:
        value = block.read(source, offset, size) - block.broadcast(mean, size)
        return value * value

    statements, (total,) = block.fold(folding.SUM, square)
    variance = total * tir.constant(1 / block.rows.length, block.result_lanes)
    root = tirx.sqrt(variance + tir.constant(epsilon, block.result_lanes))
    statements, factor = bind_once(statements, tir.constant(1.0, block.result_lanes) / root, block)
    return [*mean_statements, *statements], mean, factor


def _variance_of(rewriter: Rewriter, value: Any, difference: Any) -> Any:
    """Return a variance's call: one operator, or a mean of squares."""
    variance = rewriter.producer(value, "variance")
    mean = rewriter.producer(value, "mean")
    if mean is None:
        return variance
    source, is_square = matching.squared_operand(rewriter, mean.args[0])
    return mean if is_square and _is_same_difference(rewriter, source, difference) else None


def _is_same_difference(rewriter: Rewriter, value: Any, difference: Any) -> bool:
    """Test if values are equal, or differences of the same operands."""
    if value.same_as(difference):
        return True
    first, second = (rewriter.producer(operand, "subtract") for operand in (value, difference))
    return (
        first is not None
        and second is not None
        and all(a.same_as(b) for a, b in zip(first.args, second.args, strict=True))
    )
