"""Transpose: a tensor copied in another axis order, blockwise in registers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm
from tvm import tirx

from pipeline.executor.kernels import anchor
from pipeline.executor.kernels.microarchitecture import TASK_ELEMENTS, Microarchitecture
from pipeline.executor.kernels.tir import shuffling
from pipeline.tvm import statements as tir

_DTYPES = {"float32", "int32"}


class StridedAxis(NamedTuple):
    """Extent of an axis, with source and target strides."""

    extent: int
    source: int
    target: int


def write(function: Any, cpu: Microarchitecture, cores: int) -> Any:
    """Vectorise a pure transpose of four-byte elements, else None."""
    blocks = anchor.blocks_of(function)
    # One block, one operand and one result: everything else does more than transpose.
    axes = _axes(blocks[0]) if len(blocks) == 1 and len(function.params) == 2 else None
    if axes is None:
        return None
    source, target = function.params
    statement = _statement(axes, cpu, (source, target), cores)
    return function.with_body(statement).with_attr("s_tir", True)


def _axes(block: Any) -> list[StridedAxis] | None:
    """Return a transposing block's axes, in result order."""
    store = block.body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tvm.ir.TensorLoad):
        return None
    variables = [axis.var for axis in block.iter_vars]
    load = store.value
    source_axes = [_position(index, variables) for index in load.indices]
    target_axes = [_position(index, variables) for index in store.indices]
    if (
        None in source_axes
        or target_axes != list(range(len(variables)))
        or sorted(map(_number, source_axes)) != target_axes
    ):
        return None
    if not all(isinstance(axis.dom.extent, tirx.IntImm) for axis in block.iter_vars):
        return None
    if str(load.source.dtype) not in _DTYPES:
        return None
    shapes = [[int(extent) for extent in load.source.shape], [int(axis.dom.extent) for axis in block.iter_vars]]
    # A slice from the first position on reads by the same indices, but has elements that it leaves out between them.
    if [shapes[0][axis] for axis in map(source_axes.index, target_axes)] != shapes[1]:
        return None
    strides = [[math.prod(shape[axis + 1 :]) for axis in range(len(shape))] for shape in shapes]
    return [
        StridedAxis(extent, strides[0][source_axes.index(axis)], strides[1][axis])
        for axis, extent in enumerate(shapes[1])
    ]


def _number(value: int | None) -> int:
    return -1 if value is None else value


def _position(index: Any, variables: Sequence[Any]) -> int | None:
    # None for any other expression, such as that of a reversed axis.
    return next((number for number, var in enumerate(variables) if index.same_as(var)), None)


def join_axes(axes: Sequence[StridedAxis]) -> list[StridedAxis]:
    """Join axes adjacent on both sides, dropping those of one element."""
    joint_axes: list[StridedAxis] = []
    for axis in axes:
        # It has one index, whatever its stride is.
        if axis.extent == 1:
            continue
        previous_axis = joint_axes[-1] if joint_axes else None
        if previous_axis and (previous_axis.source, previous_axis.target) == (
            axis.source * axis.extent,
            axis.target * axis.extent,
        ):
            joint_axes[-1] = StridedAxis(previous_axis.extent * axis.extent, axis.source, axis.target)
        else:
            joint_axes.append(axis)
    return joint_axes or [StridedAxis(1, 1, 1)]


def _statement(axes: Sequence[StridedAxis], cpu: Microarchitecture, buffers: tuple[Any, Any], cores: int) -> Any:
    size = math.prod(axis.extent for axis in axes)
    axes = join_axes(axes)
    dtype = str(buffers[0].dtype)
    views = [tir.flat(buffer, name, size, dtype) for buffer, name in zip(buffers, ("source", "target"), strict=True)]
    (source, _), (target, _) = views
    target_axis = axes[-1]
    source_axis = next(axis for axis in axes if axis.source == 1)
    outer_axes = [axis for axis in axes if axis not in (target_axis, source_axis)]
    copy = _TransposeLoops(source, target, cpu.lanes)
    steps = -(-source_axis.extent // cpu.lanes) if source_axis != target_axis else 1

    def task(index: Any) -> Any:
        indices = tir.unravel(index, [*(axis.extent for axis in outer_axes), steps])
        strides = [axis.source for axis in outer_axes], [axis.target for axis in outer_axes]
        starts = [
            sum((position * stride for position, stride in zip(indices, side, strict=False)), tir.number(0))
            for side in strides
        ]
        return (
            copy.line(target_axis.extent, starts)
            if steps == 1 and source_axis == target_axis
            else copy.blocks(target_axis, source_axis, starts, indices[-1])
        )

    # Moving is bound by memory: cores that share it are only worth waking for many elements.
    tasks = cores if size > TASK_ELEMENTS else 1
    task_count = math.prod(axis.extent for axis in outer_axes) * steps
    return tir.sequence([*(declare for _, declare in views), tir.loop("task", task_count, task, tir.parallel(tasks))])


class _TransposeLoops:
    """Writes the copies inside of the outer loops."""

    def __init__(self, source: Any, target: Any, lanes: int) -> None:
        self._source, self._target, self._lanes = source, target, lanes

    def line(self, count: int, starts: Sequence[Any]) -> Any:
        """Copy neighbours."""
        source, target = starts
        return tir.run(
            count,
            self._lanes,
            lambda offset, size: tir.store(
                self._target, tir.load(self._source, tir.span(source + offset, size)), tir.span(target + offset, size)
            ),
        )

    def blocks(self, target_axis: StridedAxis, source_axis: StridedAxis, starts: Sequence[Any], step: Any) -> Any:
        """Copy a line of blocks: source vectors to target neighbours."""
        lanes = self._lanes
        # A square block needs a vector's width along both axes.
        if min(target_axis.extent, source_axis.extent) < lanes:
            return self._narrow(target_axis, source_axis, starts, step)
        source, target = starts
        first = tir.piece_start(step, lanes, source_axis.extent)

        def block(index: Any) -> Any:
            offset = tir.piece_start(index, lanes, target_axis.extent)

            def store(number: int, column: Any) -> Any:
                position = target + (first + number) * source_axis.target + offset
                return tir.store(self._target, column, tir.ramp(position, lanes))

            start = source + offset * target_axis.source + first
            return shuffling.block(self._source, start, target_axis.source, lanes, store)

        return tir.loop("block", -(-target_axis.extent // lanes), block)

    def _narrow(self, target_axis: StridedAxis, source_axis: StridedAxis, starts: Sequence[Any], step: Any) -> Any:
        """Copy elementwise, longer loop inside for vectorisation."""
        source, target = starts
        count = min(self._lanes, source_axis.extent)
        first = tir.piece_start(step, count, source_axis.extent)

        def element(offset: Any, number: Any) -> Any:
            value = tir.load(self._source, source + offset * target_axis.source + (first + number))
            return tir.store(self._target, value, target + (first + number) * source_axis.target + offset)

        if target_axis.extent < count:
            return tir.loop(
                "place", target_axis.extent, lambda offset: tir.loop("n", count, lambda n: element(offset, n))
            )
        return tir.loop("n", count, lambda n: tir.loop("place", target_axis.extent, lambda offset: element(offset, n)))
