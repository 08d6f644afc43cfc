"""Lowering: the passes from a kernel's loops to LLVM."""

from __future__ import annotations

import functools
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx import compilation_pipeline

from pipeline.executor import host_target
from pipeline.executor.kernels.tir import remainders

PIPELINE = "soc-pipeline"
"""TVM's name of the passes."""


def pipeline_for(target: Any) -> str:
    """Return the name of a target's passes from TIR to LLVM."""
    # Other processors have no such vectors, and may have another number for the unknown zero.
    masks = host_target.needs(target)[0] == "x86_64"
    name = f"{PIPELINE}-{'masking' if masks else 'plain'}"
    compilation_pipeline.register_tir_pipeline(name, functools.partial(_pipeline, masks=masks))
    return name


def _pipeline(*, masks: bool) -> tuple[Any, Any, Any]:
    scheduled, *finalization = compilation_pipeline.get_tir_pipeline("default")

    @tvm.transform.module_pass(opt_level=0, name="LowerKernels")  # type: ignore[untyped-decorator]
    def lower(module: Any, _: Any) -> Any:
        return (scheduled if _has_blocks(module) else tvm.transform.Sequential(_passes()))(module)

    # Last, since TVM's passes look into remainders too, and simplify most of them.
    masking = [remainders.masking()] if masks else []
    return (tvm.transform.Sequential([lower, *masking]), *finalization)


def _passes() -> list[Any]:
    """Return those of TVM's passes that change functions without blocks and threads, in TVM's order."""
    passes = tirx.transform
    return [
        s_tir.transform.StmtSimplify(),
        passes.FlattenBuffer(),
        passes.BF16ComputeLegalize(),
        passes.NarrowDataType(32),
        s_tir.transform.LoopPartition(),
        passes.VectorizeLoop(),
        passes.StorageRewrite(),
        s_tir.transform.HoistIfThenElse(),
        passes.UnrollLoop(),
        passes.StmtSimplify(),
        s_tir.transform.RewriteUnsafeSelect(),
        passes.CommonSubexprElim(),
        passes.VerifyMemory(),
        passes.AnnotateEntryFunc(),
        passes.SplitHostDevice(),
        passes.MakePackedAPI(),
        passes.FP8StorageLegalize(),
        passes.BF16StorageLegalize(),
    ]


def _has_blocks(module: Any) -> bool:
    blocks: list[Any] = []
    for function in module.functions.values():
        tvm_ffi.structural_walk(function, (tvm.s_tir.SBlockRealize, blocks.append))
    return bool(blocks)
