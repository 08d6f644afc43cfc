"""Scatters: updates stored at indices, in order.

TVM's own scatters count all axes as one, in which an index outside of its axis is another element, and share each row
of updates between threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from pipeline.executor.kernels.microarchitecture import TASK_ELEMENTS
from pipeline.tvm import statements as tir

_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda _, update: update,
    "add": lambda value, update: value + update,
    "mul": lambda value, update: value * update,
    "mean": lambda value, update: (value + update) / tirx.const(2, value.ty.dtype),
    "min": tirx.min,
    "max": tirx.max,
}

Place = Callable[[Sequence[Any], Sequence[Any]], list[Any]]
"""Target position of an update, from the index tensors and its own position."""


def legalizations() -> dict[str, Any]:
    """Return the rules of ``LegalizeOps`` for scatters."""
    return {
        "relax.scatter_elements": _legalize_elements,
        "relax.scatter_nd": _legalize_rows,
        "relax.index_put": _legalize_positions,
    }


def _legalize_elements(builder: Any, call: Any) -> Any:
    data, indices, updates = call.args
    axis = int(call.attrs.axis) % data.ty.ndim

    def locate(indices: Sequence[Any], position: Sequence[Any]) -> list[Any]:
        index = _from_start(tir.load(indices[0], *position), data.ty.shape[axis])
        return [*position[:axis], index, *position[axis + 1 :]]

    # Of two slices across the axis, none has an update for a place of the other one.
    is_parallel = axis > 0 and _size(updates) > TASK_ELEMENTS
    return _scatter(builder, call.attrs.reduction, data, [indices], updates, locate, is_parallel=is_parallel)


def _legalize_rows(builder: Any, call: Any) -> Any:
    data, indices, updates = call.args
    *rows, depth = indices.ty.shape

    def locate(indices: Sequence[Any], position: Sequence[Any]) -> list[Any]:
        row = position[: len(rows)]
        columns = [_wide(tir.load(indices[0], *row, tir.number(axis))) for axis in range(int(depth))]
        return [*columns, *position[len(rows) :]]

    return _scatter(builder, call.attrs.reduction, data, [indices], updates, locate)


def _legalize_positions(builder: Any, call: Any) -> Any:
    data, indices, values = call.args
    fields = list(indices.fields) if isinstance(indices, relax.Tuple) else [indices]
    shape = np.broadcast_shapes(*(tuple(map(int, field.ty.shape)) for field in fields))

    def spread(tensor: Any) -> Any:
        extents = tuple(map(int, tensor.ty.shape))
        # As many values in another shape are taken in their order, as TVM does.
        change = topi.reshape if math.prod(extents) == math.prod(shape) else topi.broadcast_to
        return tensor if extents == shape else builder.emit(builder.call_te(change, tensor, shape))

    def locate(indices: Sequence[Any], position: Sequence[Any]) -> list[Any]:
        return [
            _from_start(tir.load(index, *position), extent)
            for index, extent in zip(indices, data.ty.shape, strict=True)
        ]

    reduction = "add" if call.attrs.accumulate else "update"
    return _scatter(builder, reduction, data, [spread(field) for field in fields], spread(values), locate)


def _scatter(  # noqa: PLR0913, PLR0917 - what a scatter consists of
    builder: Any,
    reduction: Any,
    data: Any,
    indices: list[Any],
    updates: Any,
    locate: Place,
    *,
    is_parallel: bool = False,
) -> Any:
    """Call a function copying `data` and storing the updates."""

    def write(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        (source, values, *index_tensors), (result,) = inputs, outputs

        def update(position: Sequence[Any]) -> Any:
            target = locate(index_tensors, position)
            value = _REDUCTIONS[str(reduction)](tir.load(result, *target), tir.load(values, *position))
            return tir.store(result, value, *target)

        copy = _nest(source.shape, lambda position: tir.store(result, tir.load(source, *position), *position))
        return tir.sequence([copy, _nest(values.shape, update, is_parallel=is_parallel)])

    def compute(*tensors: Any) -> Any:
        data = tensors[0]
        return te.extern([data.shape], list(tensors), write, dtype=str(data.dtype), name="scatter")

    return builder.call_te(compute, data, updates, *indices, primfunc_name_hint="scatter")


def _nest(extents: Sequence[Any], body: Callable[[Sequence[Any]], Any], *, is_parallel: bool = False) -> Any:
    """Loop over all positions in order, optionally parallel outside."""
    variables = [tir.variable("i") for _ in extents]
    statement = body(variables)
    for depth, (variable, extent) in reversed(list(enumerate(zip(variables, extents, strict=True)))):
        kind = tir.PARALLEL if is_parallel and depth == 0 else tir.SERIAL
        statement = tirx.For(variable, tir.number(0), _wide(extent), kind, statement)
    return statement


def _from_start(index: Any, extent: Any) -> Any:
    """Return a possibly negative index, counted from the start."""
    index = _wide(index)
    return tirx.Select(index < 0, index + _wide(extent), index)


def _wide(value: Any) -> Any:
    return tir.number(int(value)) if isinstance(value, tirx.IntImm) else value.astype("int64")


def _size(tensor: Any) -> int:
    """Count a tensor's elements; open extents count as large."""
    extents = tensor.ty.shape
    return math.prod(int(extent) if isinstance(extent, tirx.IntImm) else TASK_ELEMENTS + 1 for extent in extents)
