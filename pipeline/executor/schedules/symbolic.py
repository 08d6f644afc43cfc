"""Stages for frames of any size: no extent is known to the rules, so everything gets the general schedule."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx

from pipeline.executor.schedules import machine as machines
from pipeline.executor.schedules import plain
from pipeline.executor.schedules.marks import GENERAL, KERNEL


def optimise(module: Any, target: Any, cores: int) -> Any:
    """Return the module of a stage with symbolic extents with its operators as kernels.

    Parameters
    ----------
    module : tvm.IRModule
    target : tvm.target.Target
        An LLVM target.
    cores : int
        How many cores the stage may use.
    """
    machine = machines.of(target)
    layouts = {"relax.nn.conv2d": ["NHWC", "HWIO"]}
    steps = (
        relax.transform.ConvertLayout(layouts),
        relax.transform.Normalize(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.FoldConstant(),
        relax.transform.DeadCodeElimination(["main"]),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.RewriteDataflowReshape(),
    )
    with target:
        fused = tvm.transform.Sequential(steps)(module)

    def kernel(name: str, function: Any) -> Any:
        if not isinstance(function, tirx.PrimFunc):
            return function
        return plain.scheduled(function, machine, cores).with_attr({"global_symbol": name, KERNEL: GENERAL})

    return tvm.IRModule({name: kernel(str(name.name_hint), each) for name, each in fused.functions.items()})
