"""CPU kernels without tuning: tile sizes from registers and caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline.core.numerics import EXACT, Numerics
from pipeline.errors import BuildError
from pipeline.executor.kernels import microarchitecture as microarchitectures
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.provenance import kernels
from pipeline.executor.precision import widen_calls

if TYPE_CHECKING:
    from pipeline.executor.kernels.anchor import Choices
    from pipeline.executor.kernels.layout.rewriter import Rewrite

__all__ = ["applies", "kernels", "optimise", "pipeline", "target_for", "tir_pipeline"]


def target_for(target: Any) -> Any:
    """Return the target for compilation, with LLVM's preferences for CPU kernels."""
    return microarchitectures.tune_target(target) if applies(target) else target


def applies(target: Any) -> bool:
    """Test if the kernels support a target."""
    return str(target.kind.name) == "llvm"


def optimise(  # noqa: PLR0913 - the last ones by keyword
    module: Any,
    target: Any,
    cores: int = 1,
    channels_last: set[str] | None = None,
    *,
    numerics: Numerics = EXACT,
    tuned: Choices | None = None,
    microarchitecture: Microarchitecture | None = None,
    rewrites: Sequence[Rewrite] | None = None,
) -> Any:
    """Write a stage's operators as kernels, with packed constant weights.

    Parameters
    ----------
    target : tvm.target.Target
        An LLVM target; `microarchitecture` takes the place of its own.
    channels_last : set of str, optional
        If the module is the inside of a stage: its inputs that are at hand with channels last, to which its outputs
        that are made so are added.
    numerics : Numerics
        Permitted changes to the arithmetic of the model.
    tuned : Choices, optional
        Choices that tuning made.
    rewrites : sequence of Rewrite, optional
        Rewrites in place of those in the registry.
    """
    if not applies(target):
        return widen_calls(module)

    from pipeline.executor.kernels import registry, stage

    cpu = microarchitecture or microarchitectures.of_target(target)
    numerics = _resolve(numerics, cpu, target)
    cpu = replace(cpu, layouts=None if tuned is None else tuned.layout)
    fused_module = stage.fuse_stage(module, target, cpu, channels_last, numerics, rewrites or registry.REWRITES)
    return stage.write_kernels(fused_module, cpu, cores, tuned)


def _resolve(numerics: Numerics, cpu: Microarchitecture, target: Any) -> Numerics:
    """Return the numerics for a processor; raise `BuildError` without the instructions."""
    numerics = numerics.resolve(cpu.narrow_formats)
    kind = numerics.arithmetic
    if kind != "float32" and kind not in cpu.narrow_formats:
        name = str(target.attrs.get("mcpu", "")) or "the processor"
        owners = {
            "float16": "64-bit Arm cores since Cortex-A55 and A75 have it (+fullfp16)",
            "bfloat16": "x86 processors with AMX or AVX512-BF16 and Arm cores with BF16 have it",
        }
        raise BuildError(
            f"precision is {kind}, which {name} does not have, or has no kernels for; {owners[kind]}: build other "
            f"stages with --stage-option STAGE.precision=float32, or with weights={kind}, whose products are float32"
        )
    return numerics


def pipeline(target: Any) -> Any:
    """Return the passes from a module to virtual machine code."""
    import tvm
    from tvm import relax

    if not applies(target):
        return relax.get_default_pipeline(target)

    @tvm.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def run(module: Any, _: Any) -> Any:
        with target:
            return tvm.transform.Sequential(_passes(target, is_optimised=bool(kernels(module))))(module)

    return run


def tir_pipeline(target: Any) -> str:
    """Return the name of the passes from TIR to LLVM."""
    from pipeline.executor.kernels.tir import lowering

    return lowering.pipeline_for(target) if applies(target) else "default"


def _passes(target: Any, *, is_optimised: bool) -> list[Any]:
    from tvm import relax
    from tvm.relax.backend.cpu_generic import pipeline as generic

    from pipeline.executor.kernels.tir import nan, remainders

    return [
        *([] if is_optimised else [*generic.library_dispatch_passes(target), *generic.legalize_passes(target)]),
        # Behind legalization, so that TVM's own functions are changed too.
        nan.limits_pass(),
        remainders.widen_pass(),
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
        *generic.finalize_passes(target),
    ]
