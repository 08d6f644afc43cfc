"""Stage: layout, fusion by TVM, then kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.backend.cpu_generic import pipeline as generic

from pipeline.core.numerics import Numerics
from pipeline.executor import precision
from pipeline.executor.kernels import anchor, general, in_place, provenance, registry, scatter
from pipeline.executor.kernels.anchor import Choices, FusedGroup
from pipeline.executor.kernels.layout.rewriter import Rewrite, Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tir import bounds, elementary, nan
from pipeline.tvm.objects import mutate

_HASH = (1 << 64) - 1
"""Mask of a structural hash, which is a signed number."""

_LONGEST = 80
"""Characters of operators in a kernel's name, which is also a file's: systems take 255."""

SCHEDULED = "tirx.is_scheduled"
"""Attribute of TVM for functions with final loops, such as a frontend's."""


def fuse_stage(  # noqa: PLR0913, PLR0917 - what a stage is compiled for
    module: Any,
    target: Any,
    cpu: Microarchitecture,
    channels_last: set[str] | None,
    numerics: Numerics,
    rewrites: Sequence[Rewrite],
) -> Any:
    """Return a stage with layout, placeholders and fused operators."""
    with target:
        # Where halves are widened for each sum, all in between is computed in float32, too: roundings and their casts
        # took longer than the sums.  ONNX Runtime and OpenVINO drop them as well.
        is_widened = not cpu.multiplies_halves and precision.is_widely_comparable(module)
        wide = precision.widen(module, keeps_interface=True) if is_widened else None
        main = (wide or precision.widen_calls(module))["main"]
        rewritten = Rewriter(main, rewrites, cpu, numerics, channels_last).run()
        # Kernels that the stage brings along, which its calls name by these variables.
        for variable, function in module.functions.items():
            if isinstance(function, tirx.PrimFunc):
                rewritten[variable] = function
        return tvm.transform.Sequential(_passes(module["main"], target))(rewritten)


def _passes(original: Any, target: Any) -> list[Any]:
    return [
        # The rewriter leaves values that nobody reads, such as an image in its other layout.
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(["main"]),
        *generic.library_dispatch_passes(target),
        relax.transform.LegalizeOps({**nan.legalizations(), **scatter.legalizations()}),
        relax.transform.AnnotateTIROpPattern(),
        bounds.separate_pass(),
        # Behind legalization, which makes all calls anew and loses their spans.
        provenance.before_fusion(original),
        relax.transform.FuseOps(),
        provenance.after_fusion(),
        relax.transform.FuseTIR(),
        # It looks for blocks, which the kernels have none of.
        relax.transform.RewriteDataflowReshape(),
    ]


def write_kernels(module: Any, cpu: Microarchitecture, cores: int, choices: Choices | None) -> Any:
    """Write every function of a fused stage as a kernel."""
    # Before kernels are written, since a group is written for the buffer that it stores to.
    module, groups = in_place.overwrite_operands(module, lambda group: registry.writes_once(group, cpu, cores))
    # An operand may be overwritten by every call of a function, whose first form nobody calls then.
    module = relax.transform.DeadCodeElimination(["main"])(module)
    writer = _StageWriter(cpu, cores, groups, choices)
    functions = {
        variable: writer.kernel(str(variable.name_hint), function) for variable, function in module.functions.items()
    }
    return _name_by_content(bounds.guard_module(module, tvm.IRModule(functions), cpu), choices)


def _name_by_content(module: Any, choices: Choices | None) -> Any:
    """Return a stage whose kernels have names that follow from their code, so that equal ones are compiled once."""
    variables: dict[Any, Any] = {}
    builder = relax.BlockBuilder(tvm.IRModule({}, attrs=module.attrs))
    for variable, function in module.functions.items():
        if isinstance(function, tirx.PrimFunc):
            # TVM numbers operators in the order of the stage.
            operators = re.sub(r"\d+(?=_|$)", "", str(variable.name_hint))[:_LONGEST]
            kernel = function.without_attr("global_symbol")
            name = f"{operators}_{tvm_ffi.structural_hash(kernel) & _HASH:016x}"
            variables[variable] = builder.add_func(kernel.with_attr("global_symbol", name), name)

    if choices is not None:
        choices.rename({str(old.name_hint): str(new.name_hint) for old, new in variables.items()})

    def rename(variable: Any, _: Any) -> Any:
        return variables.get(variable, variable)

    main = mutate(module["main"], [(tvm.ir.GlobalVar, rename)])
    kernels = builder.get()
    kernels[module.get_global_var("main")] = main
    return kernels


class _StageWriter(NamedTuple):
    """Writes functions for a processor; in-place groups are passed by name."""

    cpu: Microarchitecture
    cores: int
    groups: dict[str, FusedGroup]
    choices: Choices | None

    def kernel(self, name: str, function: Any) -> Any:
        """Return a function as it is to be compiled."""
        if not isinstance(function, tirx.PrimFunc):
            return function
        if SCHEDULED in function.attrs:
            return provenance.mark(elementary.without_library(function), name, provenance.GENERAL)
        kernel, label, operations = self._schedule(name, function)
        return provenance.mark(elementary.without_library(kernel), name, label, operations)

    def _schedule(self, name: str, function: Any) -> tuple[Any, str, int]:
        """Return a function's loops, kernel name and operations."""
        group = self.groups.get(name) or anchor.group_of(function)
        # Asked in any case: a search notes there what it may tune.
        tuned_function = None if self.choices is None else self.choices.kernel(name, function, group)
        if group:
            kernel = group.with_body(registry.write(group, self.cpu, self.cores))
            return kernel, group.placeholder.label, registry.operations(group)
        if tuned_function is not None:
            return tuned_function, provenance.TUNED, 0
        return general.schedule(function, self.cpu, self.cores), provenance.GENERAL, 0
