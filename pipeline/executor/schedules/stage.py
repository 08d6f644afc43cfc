"""Stage: it gets its layout, TVM fuses its operators, and rules write the kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import tvm
from tvm import relax, tirx
from tvm.relax.backend.cpu_generic import pipeline as generic

from pipeline.executor.numerics import Numerics
from pipeline.executor.schedules import anchors, names, plain, reuse, rules, writers
from pipeline.executor.schedules.anchors import Fused
from pipeline.executor.schedules.choices import Choices
from pipeline.executor.schedules.language import elementary
from pipeline.executor.schedules.layout.rewriter import Rewriter
from pipeline.executor.schedules.machine import Machine
from pipeline.executor.schedules.marks import GENERAL, KERNEL, TUNED
from pipeline.executor.schedules.quantized import rules as quantized


def fused(module: Any, target: Any, machine: Machine, inner: set[str] | None, numerics: Numerics) -> Any:
    """Return a stage with stand-ins for the operators that rules write, in its layout, and fused."""
    with target:
        known = quantized.for_layout(machine, rules.for_layout(machine, winograd=numerics.winograd))
        written = Rewriter(module["main"], known, inner).run()
        return tvm.transform.Sequential(_passes(module["main"], target))(written)


def _passes(original: Any, target: Any) -> list[Any]:
    return [
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(["main"]),
        *generic.library_dispatch_passes(target),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        names.before_fusion(original),
        relax.transform.FuseOps(),
        names.after_fusion(),
        relax.transform.FuseTIR(),
        # It looks for blocks, which the kernels have none of.
        relax.transform.RewriteDataflowReshape(),
    ]


def written(module: Any, machine: Machine, cores: int, tuned: Choices | None) -> Any:
    """Return a fused stage with every function as a kernel."""
    module, over = reuse.in_place(module, lambda anchor: writers.exact(anchor, machine, cores))
    kernels = _Kernels(machine, cores, over, tuned)
    return tvm.IRModule({name: kernels.of(str(name.name_hint), each) for name, each in module.functions.items()})


class _Kernels(NamedTuple):
    """What kernels are written for, those that overwrite an operand, and what was found by tuning."""

    machine: Machine
    cores: int
    over: dict[str, Fused]
    tuned: Choices | None

    def of(self, name: str, function: Any) -> Any:
        """Return a function as it is to be compiled."""
        if not isinstance(function, tirx.PrimFunc):
            return function
        made, mark = self._scheduled(name, function)
        return elementary.without_library(made).with_attr({"global_symbol": name, KERNEL: mark})

    def _scheduled(self, name: str, function: Any) -> tuple[Any, str]:
        anchor = self.over.get(name) or anchors.fused(function)
        better = None if self.tuned is None else self.tuned.kernel(name, function, anchor)
        if anchor:
            made = anchor.replaced(writers.write(anchor, self.machine, self.cores))
            return made, f"{anchor.description.rule} {writers.operations(anchor)}"
        if better is not None:
            return better, TUNED
        return plain.scheduled(function, self.machine, self.cores), GENERAL
