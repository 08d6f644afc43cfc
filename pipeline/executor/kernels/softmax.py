"""Softmax and its logarithm: maximum, exponentials, scaling per row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import MEMORY_BOUND, Kernel, epilogue_store
from pipeline.executor.kernels.layout.expressions import name_of
from pipeline.executor.kernels.layout.rewriter import Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.rows import folding, matching
from pipeline.executor.kernels.rows.rows import RowBlock, Rows, bind_once, loop_over_rows, store_elements
from pipeline.executor.kernels.tir.elementary import exponential
from pipeline.tvm import statements as tir

Store = Callable[..., Any]


@dataclass(frozen=True)
class SoftmaxForm:
    """Rows along the softmax's axis, plain or logarithmic."""

    rows: Rows
    logarithm: bool


class Softmax(Kernel[SoftmaxForm]):
    """Softmax along one axis."""

    name = "softmax"
    operators = frozenset({"nn.softmax", "nn.log_softmax"})
    form = SoftmaxForm
    effort = MEMORY_BOUND

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Return the placeholder of a float32 softmax."""
        data = call.args[0]
        if not matching.is_float_data(data, call):
            return None
        last = rewriter.is_last(data)
        source, rows = matching.rows_of(rewriter, data, matching.axes_of([call.attrs.axis], data.ty.ndim), last=last)
        form = SoftmaxForm(rows, name_of(call) == "nn.log_softmax")
        result = self.placeholder(rewriter.builder, form, [source], rows.shape)
        return matching.in_layout(result, last=last)

    def write(self, group: FusedGroup, form: SoftmaxForm, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over rows."""
        source, declaration = tir.flat(group.operands[0], "data", form.rows.size)
        store, body = epilogue_store(group), _logarithms if form.logarithm else _shares

        def statement(block: RowBlock) -> Any:
            return tir.sequence(body(block, source, store))

        return tir.sequence([declaration, loop_over_rows(form.rows, cpu.lanes, tasks, statement, count=1)])

    def operations(self, form: SoftmaxForm) -> int:
        """Count comparison, difference, exponential, sum and product per element."""
        return form.rows.size * 5


def _maximum(block: RowBlock, source: Any) -> tuple[list[Any], Any]:
    statements, (maximum,) = block.fold(folding.LARGEST, lambda start, size, _: block.read(source, start, size))
    return bind_once(statements, maximum, block)


def _power(block: RowBlock, source: Any, maximum: Any, offset: Any, size: int) -> Any:
    # Without the maximum, the exponentials of large numbers would leave float32.
    bindings = tir.Bindings()
    difference = block.read(source, offset, size) - block.broadcast(maximum, size)
    return bindings.around(exponential(difference, size, bindings, largest=0.0))


def _shares(block: RowBlock, source: Any, store: Store) -> list[Any]:
    maximum_statements, maximum = _maximum(block, source)
    # One row, which stays in the cache: computing the exponentials again would take longer than reading them.
    powers = tir.buffer("powers", [block.rows.length * block.result_lanes])
    stride = 1 if block.rows.contiguous else block.rows.stride(block.rows.axes[0])

    def position(offset: Any) -> Any:
        return offset if block.rows.contiguous else offset // stride * block.lanes

    def keep(offset: Any, value: Any, size: int) -> Any:
        return tir.store(powers, value, tir.span(position(offset), size))

    statements, (total,) = block.fold(
        folding.SUM,
        lambda start, size, _: _power(block, source, maximum, start, size),
        keep,
    )
    # One division for each row, and a product for each element.
    sums, share = bind_once(statements, tir.constant(1.0, block.result_lanes) / total, block)
    shares = store_elements(
        block,
        lambda start, size: tir.load(powers, tir.span(position(start), size)) * block.broadcast(share, size),
        store,
    )
    return [tirx.AllocBuffer(powers), *maximum_statements, *sums, shares]


def _logarithms(block: RowBlock, source: Any, store: Store) -> list[Any]:
    maximum_statements, maximum = _maximum(block, source)
    statements, (total,) = block.fold(folding.SUM, lambda start, size, _: _power(block, source, maximum, start, size))
    sums, shift = bind_once(statements, tirx.log(total) + maximum, block)
    logarithms = store_elements(
        block, lambda start, size: block.read(source, start, size) - block.broadcast(shift, size), store
    )
    return [*maximum_statements, *sums, logarithms]
