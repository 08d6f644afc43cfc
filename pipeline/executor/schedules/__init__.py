"""CPU kernels that need no tuning: tile sizes follow from the processor's registers and caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pipeline.executor.numerics import EXACT, Numerics
from pipeline.executor.schedules import machine as machines

KERNEL = "soc.kernel"
"""Attribute of functions that are ready for TVM's code generator: the rule, and how many operations it stands for."""

GENERAL = "general 0"
"""Its value for what has no rule of its own."""

TUNED = "tuned 0"
"""Its value for what has none, but was tuned."""


def target_for(target: Any) -> Any:
    """Return the target to compile with: a CPU's, with vectors as wide as its registers."""
    return machines.with_whole_vectors(target) if applies(target) else target


def applies(target: Any) -> bool:
    """Whether the kernels are for this kind of target."""
    return str(target.kind.name) == "llvm"


def optimise(  # noqa: PLR0913 - the last two by keyword
    module: Any,
    target: Any,
    cores: int = 1,
    inner: set[str] | None = None,
    *,
    numerics: Numerics = EXACT,
    tuned: Callable[[str, Any], Any] | None = None,
) -> Any:
    """Return the module of a stage with its operators as kernels, weights packed as constants of its ``main``.

    Parameters
    ----------
    module : tvm.IRModule
        A stage in Relax.
    target : tvm.target.Target
        An LLVM target.
    cores : int
        How many cores the stage may use.
    inner : set of str, optional
        If the module is the inside of a stage: its inputs that are at hand with channels last, to which its outputs
        that are made so are added.
    numerics : Numerics
        What may be done to the arithmetic of the model.
    tuned : callable, optional
        Takes the name and the function of a kernel that no rule writes; returns it scheduled, or None for the general
        schedule.
    """
    import tvm
    from tvm import relax, tirx
    from tvm.relax.backend.cpu_generic import pipeline as generic

    from pipeline.executor.schedules import anchors, elementary, names, plain, quantized, reuse, rules, writers
    from pipeline.executor.schedules.layout import Rewriter

    # A stage that brings functions of its own is left to TVM.
    if not applies(target) or len(module.functions) > 1:
        return module

    machine = replace(machines.of(target), weights=numerics.weights)
    with target:
        found = quantized.for_layout(machine, rules.for_layout(machine, winograd=numerics.winograd))
        written = Rewriter(module["main"], found, inner).run()
        steps = (
            relax.transform.CanonicalizeBindings(),
            relax.transform.DeadCodeElimination(["main"]),
            *generic.library_dispatch_passes(target),
            relax.transform.LegalizeOps(),
            relax.transform.AnnotateTIROpPattern(),
            names.before_fusion(module["main"]),
            relax.transform.FuseOps(),
            names.after_fusion(),
            relax.transform.FuseTIR(),
            # It looks for blocks, which the kernels have none of.
            relax.transform.RewriteDataflowReshape(),
        )
        fused = tvm.transform.Sequential(steps)(written)
    fused, over = reuse.in_place(fused, lambda anchor: writers.exact(anchor, machine, cores))

    def kernel(name: str, function: Any) -> Any:
        if not isinstance(function, tirx.PrimFunc):
            return function
        anchor = over.get(name) or anchors.fused(function)
        if anchor:
            made = anchor.replaced(writers.write(anchor, machine, cores))
            described = f"{anchor.description.rule} {writers.operations(anchor)}"
        elif tuned is not None and (better := tuned(name, function)) is not None:
            made, described = better, TUNED
        else:
            made, described = plain.scheduled(function, machine, cores), GENERAL
        return elementary.without_library(made).with_attr({"global_symbol": name, KERNEL: described})

    return tvm.IRModule({name: kernel(str(name.name_hint), each) for name, each in fused.functions.items()})


def pipeline(target: Any) -> Any:
    """Return the passes that take an optimised module to the virtual machine's code."""
    import tvm
    from tvm import relax
    from tvm.relax.backend.cpu_generic import pipeline as generic

    if not applies(target):
        return relax.get_default_pipeline(target)

    @tvm.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def run(module: Any, _: Any) -> Any:
        with target:
            legal = [*generic.library_dispatch_passes(target), *generic.legalize_passes(target)]
            lower = [
                relax.transform.ToNonDataflow(),
                relax.transform.RemovePurityChecking(),
                relax.transform.CallTIRRewrite(),
            ]
            return tvm.transform.Sequential(
                [*([] if _is_legal(module) else legal), *lower, *generic.finalize_passes(target)]
            )(module)

    return run


def kernels(module: Any) -> dict[str, tuple[str, int]]:
    """Return the rule and the floating-point operations of each function of an optimised module.

    ``"general"`` stands for everything without a rule of its own, whose operations are not counted.
    """
    found = {}
    for name, function in module.functions.items():
        if function.attrs and KERNEL in function.attrs:
            rule, _, operations = str(function.attrs[KERNEL]).partition(" ")
            found[str(name.name_hint)] = rule, int(operations)
    return found


def _is_legal(module: Any) -> bool:
    """Whether a module has been through `optimise`, which leaves no operator without a function."""
    from tvm import tirx

    return any(
        isinstance(function, tirx.PrimFunc) and KERNEL in function.attrs for function in module.functions.values()
    )
