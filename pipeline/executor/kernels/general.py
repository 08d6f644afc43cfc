"""General schedule without kernel: inlining, parallel outer loops, inner vectors."""

from __future__ import annotations

import collections
import contextlib
from typing import Any

import tvm
from tvm import relax, s_tir, tirx
from tvm.tirx.analysis import undefined_vars

from pipeline.executor.kernels import elementwise, fused_elements, microarchitecture, provenance, scatter, transpose
from pipeline.executor.kernels.microarchitecture import TASK_ELEMENTS, Microarchitecture
from pipeline.executor.kernels.tir import bounds, elementary, nan
from pipeline.tvm.objects import mutate

MOST_REPEATED = 64
"""Loads per element, up to which a tensor is recomputed at every reading rather than stored.

A chain of operators that read their operand twice doubles with each of them.
"""

MOST_NESTED = 16
"""Operators in a row, up to which all but the last are written out where they are read.

TVM's simplification of an expression takes ten times as long for eight more operators of quantised numbers inside of
one another: a tenth of a second for 16 of them, and minutes for the dozens in which a pose network measures distances.
"""


def schedule(function: Any, cpu: Microarchitecture, cores: int) -> Any:
    """Apply the general schedule's possible steps."""
    if (transposition := transpose.write(function, cpu, cores)) is not None:
        return transposition
    steps = s_tir.Schedule(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), debug_mask="none")
    try:
        if _selects_arguments(steps):
            return function
        _inline(steps)
        if (lines := elementwise.write(steps.mod["main"], cpu, cores)) is not None:
            return lines
        for block in _blocks(steps):
            _arrange(steps, block, cpu, cores)
    except s_tir.ScheduleError:  # such as a sort, which is one opaque block
        return function
    return steps.mod["main"]


def _extent(extent: Any) -> int:
    """Return an extent; symbolic ones count as large."""
    return int(extent) if isinstance(extent, tirx.IntImm) else TASK_ELEMENTS


def _blocks(schedule: Any) -> list[Any]:
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def _selects_arguments(schedule: Any) -> bool:
    """Whether elementary functions are computed of what is selected by the last index, as in a concatenation.

    Such loops are left to LLVM, which takes them apart where the condition changes.  TVM computes a vector with a
    condition element by element: 3.7 instead of 0.7 ms for the class scores of an int8 YOLOv8n.
    """
    blocks = [schedule.get(block) for block in _blocks(schedule)]
    calls = [(block, call) for block in blocks for call in _calls(block.body)]
    tests = [(block, call.args[0]) for block, call in calls if call.op.name == "prim.if_then_else"]
    return any(call.op.name in elementary.LOWERED for _, call in calls) and any(
        used.same_as(axis.var)
        for block, test in tests
        for axis in list(block.iter_vars)[-1:]
        for used in undefined_vars(test)
    )


def _calls(node: Any) -> list[Any]:
    """Return the calls of operators inside of a node."""
    calls: list[Any] = []

    def look(call: Any, mutator: Any) -> Any:
        if isinstance(call.op, tvm.ir.Op):
            calls.append(call)
        return mutator.default_mutate(call)

    mutate(node, [(tvm.ir.Call, look)])
    return calls


def _inline(schedule: Any) -> None:
    *inner_blocks, _ = blocks = _blocks(schedule)
    loads_of = {block: [load.source for load in fused_elements.loads(schedule.get(block).body)] for block in blocks}
    readings = collections.Counter(source for sources in loads_of.values() for source in sources)
    # Loads of an element of a tensor that is written out where it is read.
    sizes: dict[Any, int] = {}
    # Operators inside of one another in it.
    depths: dict[Any, int] = {}
    # The last block writes the result.
    for block in inner_blocks:
        results = [region.source for region in schedule.get(block).writes]
        size = sum(sizes.get(source, 1) for source in loads_of[block])
        depth = 1 + max((depths.get(source, 0) for source in loads_of[block]), default=0)
        if depth >= MOST_NESTED or (size > MOST_REPEATED and any(readings[result] > 1 for result in results)):
            continue
        # Reductions, and blocks that several others read, stay.
        with contextlib.suppress(s_tir.ScheduleError):
            schedule.compute_inline(block)
            sizes.update(dict.fromkeys(results, size))
            depths.update(dict.fromkeys(results, depth))


def _arrange(schedule: Any, block: Any, cpu: Microarchitecture, cores: int) -> None:
    loops = list(schedule.get_loops(block))
    kinds = [int(axis.iter_type) for axis in schedule.get(block).iter_vars]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=False) if kind == 0]
    extents = [_extent(schedule.get(loop).extent) for loop in spatial]
    if len(kinds) != len(loops) or not spatial:
        return
    reductions = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != 0]
    innermost = spatial[-1]
    total = 1
    for extent in extents:
        total *= extent
    if extents[-1] >= cpu.lanes:
        vectors, innermost = schedule.split(innermost, [None, cpu.lanes])
        # Reductions outside of the vector: each lane has a sum of its own, and neighbours are loaded together.
        schedule.reorder(*spatial[:-1], vectors, *reductions, innermost)
        schedule.vectorize(innermost)
    outer_loops = spatial[:-1]
    # The innermost loop stays whole: rows shared by two cores would share cache lines.
    if outer_loops and total > TASK_ELEMENTS and cores > 1:
        schedule.parallel(schedule.fuse(*outer_loops))


def optimise_symbolic(module: Any, target: Any, cores: int) -> Any:
    """Schedule a stage of symbolic frame size generally.

    No extent is known to the kernels.
    """
    cpu = microarchitecture.of_target(target)
    # Channels last make vectors whatever the extents are, which nobody knows here.
    layouts = {"relax.nn.conv2d": ["NHWC", "HWIO"]}
    steps = (
        relax.transform.ConvertLayout(layouts),
        relax.transform.Normalize(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.FoldConstant(),
        relax.transform.DeadCodeElimination(["main"]),
        relax.transform.LegalizeOps({**nan.legalizations(), **scatter.legalizations()}),
        relax.transform.AnnotateTIROpPattern(),
        bounds.separate_pass(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.RewriteDataflowReshape(),
    )
    with target:
        fused_module = tvm.transform.Sequential(steps)(module)

    def kernel(name: str, function: Any) -> Any:
        if not isinstance(function, tirx.PrimFunc):
            return function
        return provenance.mark(schedule(function, cpu, cores), name, provenance.GENERAL)

    functions = {
        variable: kernel(str(variable.name_hint), function) for variable, function in fused_module.functions.items()
    }
    return bounds.guard_module(fused_module, tvm.IRModule(functions), cpu)
