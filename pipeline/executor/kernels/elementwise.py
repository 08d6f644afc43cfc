"""Elementwise: whole vectors for rows of any length.

In the general schedule, a vector at the end of a row has a condition, for which TVM takes its elements one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx

from pipeline.executor.kernels import anchor
from pipeline.executor.kernels.microarchitecture import TASK_ELEMENTS, Microarchitecture
from pipeline.tvm import statements as tir
from pipeline.tvm.objects import mutate


def write(function: Any, cpu: Microarchitecture, cores: int) -> Any:
    """Vectorise an elementwise function of odd row lengths, else None."""
    blocks = anchor.blocks_of(function)
    if len(blocks) != 1 or not isinstance(blocks[0].body, tirx.BufferStore) or len(blocks[0].writes) != 1:
        return None
    (block,) = blocks
    shape = [int(axis.dom.extent) for axis in block.iter_vars if isinstance(axis.dom.extent, tirx.IntImm)]
    if len(shape) < max(1, len(block.iter_vars)) or shape[-1] % cpu.lanes == 0:
        return None
    element = _Element(block, shape)
    if not element.is_elementwise:
        return None
    return function.with_body(_statement(element, shape, cpu, cores)).with_attr("s_tir", True)


def _statement(element: _Element, shape: Sequence[int], cpu: Microarchitecture, cores: int) -> Any:
    size = math.prod(shape)
    # Moving is bound by memory: cores that share it are only worth waking for many elements.
    tasks = cores if size > TASK_ELEMENTS else 1
    # What is the same for all rows is read by the place in a row; without it, all of them are one.
    line = shape[-1] if element.has_rows or tasks > 1 else size

    def row(index: Any) -> Any:
        def lanes(offset: Any, count: int) -> Any:
            return tir.loop("lane", count, lambda lane: element.store(index * line, offset + lane), tir.VECTORIZED)

        return tir.run(line, cpu.lanes, lanes)

    loops = tir.loop("row", size // line, row, tir.parallel(tasks))
    return tir.sequence([*element.declarations, loops])


class _Element:
    """Computation of one element, on one-dimensional views.

    It `is_elementwise` if it takes elements in its own position, those that all rows share, and numbers, but nothing
    else; it `has_rows` if it takes elements that all rows share.
    """

    def __init__(self, block: Any, shape: Sequence[int]) -> None:
        self._shape, self._axes = list(shape), [axis.var for axis in block.iter_vars]
        self._store, self._target = block.body, block.writes[0].source
        self._views: dict[Any, Any] = {}
        self.declarations: list[Any] = []
        self.has_rows = False
        self.is_elementwise = self._is_in_position(self._target, self._store.indices)
        mutate(self._store.value, [(tvm.ir.TensorLoad, self._look), (tvm.ir.Var, self._refuse)])
        if self.is_elementwise:
            self._view(self._target)

    def store(self, row: Any, column: Any) -> Any:
        """Store the element at `column` of the row at `row`."""

        def element(load: Any, _: Any) -> Any:
            view = self._view(load.source)
            if self._is_in_position(load.source, load.indices):
                return tir.load(view, row + column)
            return tir.load(view, column if math.prod(_shape(load.source)) > 1 else tir.number(0))

        value = mutate(self._store.value, [(tvm.ir.TensorLoad, element)])
        return tir.store(self._view(self._target), value, row + column)

    def _look(self, load: Any, _: Any) -> Any:
        is_row = self._is_in_row(load.source, load.indices)
        if not self._is_in_position(load.source, load.indices):
            self.has_rows |= is_row
            self.is_elementwise &= is_row or math.prod(_shape(load.source)) == 1
        if self.is_elementwise:
            self._view(load.source)
        return load

    def _refuse(self, variable: Any, _: Any) -> Any:
        # A value that depends on where it is.
        self.is_elementwise &= not any(variable.same_as(axis) for axis in self._axes)
        return variable

    def _is_in_position(self, buffer: Any, indices: Sequence[Any]) -> bool:
        return _shape(buffer) == self._shape and self._are_axes(indices, self._axes)

    def _is_in_row(self, buffer: Any, indices: Sequence[Any]) -> bool:
        shape = _shape(buffer)
        return [math.prod(shape)] == shape[-1:] == self._shape[-1:] and self._are_axes(indices[-1:], self._axes[-1:])

    def _are_axes(self, indices: Sequence[Any], axes: Sequence[Any]) -> bool:
        # Where there is one place only, the index is a number.
        return len(indices) == len(axes) and all(
            index.same_as(axis) or (extent == 1 and isinstance(index, tirx.IntImm))
            for index, axis, extent in zip(indices, axes, self._shape[-len(axes) :], strict=True)
        )

    def _view(self, buffer: Any) -> Any:
        if buffer not in self._views:
            size = math.prod(_shape(buffer))
            self._views[buffer], declaration = tir.flat(buffer, "view", size, str(buffer.dtype))
            self.declarations.append(declaration)
        return self._views[buffer]


def _shape(buffer: Any) -> list[int]:
    """Return a buffer's shape; none if it is open."""
    is_static = all(isinstance(extent, tirx.IntImm) for extent in buffer.shape)
    return [int(extent) for extent in buffer.shape] if is_static else []
