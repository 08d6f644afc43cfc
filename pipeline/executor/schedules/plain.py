"""Everything without a kernel of its own: inline what can be, outer loops in parallel, the innermost in vectors."""

from __future__ import annotations

import contextlib
from typing import Any

import tvm
from tvm import s_tir, tirx

from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.moves import transposition

_FEW = 1 << 15
"""Elements that are not worth waking another core."""


def scheduled(function: Any, machine: Machine, cores: int) -> Any:
    """Return the function scheduled, or as it is where a step is not possible."""
    if (moved := transposition.written(function, machine, cores)) is not None:
        return moved
    schedule = s_tir.Schedule(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), debug_mask="none")
    try:
        _inline(schedule)
        for block in _blocks(schedule):
            _arrange(schedule, block, machine, cores)
    except s_tir.ScheduleError:  # such as a sort, which is one opaque block
        return function
    return schedule.mod["main"]


def _extent(extent: Any) -> int:
    """Return the number; a symbolic one is taken for large."""
    return int(extent) if isinstance(extent, tirx.IntImm) else _FEW


def _blocks(schedule: Any) -> list[Any]:
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def _inline(schedule: Any) -> None:
    for block in _blocks(schedule)[:-1]:
        with contextlib.suppress(s_tir.ScheduleError):
            schedule.compute_inline(block)


def _arrange(schedule: Any, block: Any, machine: Machine, cores: int) -> None:
    loops = list(schedule.get_loops(block))
    kinds = [int(axis.iter_type) for axis in schedule.get(block).iter_vars]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=False) if kind == 0]
    extents = [_extent(schedule.get(loop).extent) for loop in spatial]
    if len(kinds) != len(loops) or not spatial:
        return
    reductions = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != 0]
    inner = spatial[-1]
    total = 1
    for extent in extents:
        total *= extent
    if extents[-1] >= machine.lanes:
        whole, inner = schedule.split(inner, [None, machine.lanes])
        schedule.reorder(*spatial[:-1], whole, *reductions, inner)
        schedule.vectorize(inner)
        outer = spatial[:-1]
    else:
        outer = spatial[:-1]
    if outer and total > _FEW and cores > 1:
        schedule.parallel(schedule.fuse(*outer))
