"""Executable: from a Relax module to TVM's executable, parameters as arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pipeline.core.numerics import EXACT, Numerics
from pipeline.errors import BuildError, reason
from pipeline.executor import host_target, kernels, linker, parameters
from pipeline.executor.kernels.anchor import Choices
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.precision import widen_calls
from pipeline.executor.stage_code import EXTERNAL, KernelCall
from pipeline.tvm.access import tvm


class Tuning(Protocol):
    """Choices of tuning, for any stage."""

    def for_stage(self, target: Any, cores: int) -> Choices:
        """Return the choices for a target and core count."""


@dataclass(frozen=True)
class CompileOptions:
    """Options that a module is compiled with."""

    channels_last: set[str] | None = None
    """Makes the module the inside of a stage: its inputs named here come in the stage's own layout, channels last, and
    its outputs that are made so are added."""
    tuning: Tuning | None = None
    """Kernels that no rule writes, and the layouts of those that one does."""
    numerics: Numerics = EXACT
    symbolic: bool = False
    """True if no extent of the module is known; all kernels are TVM's then."""
    microarchitecture: Microarchitecture | None = None
    """Stands in place of that of the CPU's target."""
    count: Callable[[int, int], None] = lambda _done, _all: None
    """Called with the number of compiled kernels, and of all."""


BY_RULES = CompileOptions()
"""Options without tuning, with exact arithmetic."""


def build_executable(
    module: Any, target: Any, cores: int, options: CompileOptions
) -> tuple[Any, dict[str, np.ndarray], tuple[KernelCall, ...] | None]:
    """Build a module's executable; return it with parameters and calls."""
    try:
        # A symbolic stage has no shapes that tiles could follow from.
        if options.symbolic:
            module, calls = _optimise_symbolic(module, target, cores), None
        else:
            module = _optimise(module, target, cores, options)
            calls = _kernel_calls(module)
        executable, constants = _lower(module, target, options)
    except BuildError:
        raise
    except Exception as error:
        raise BuildError(f"TVM cannot compile for {target}: {reason(error)}") from error
    return executable, constants, calls


def _optimise(module: Any, target: Any, cores: int, options: CompileOptions) -> Any:
    return kernels.optimise(
        module,
        target,
        cores,
        options.channels_last,
        tuned=None if options.tuning is None else options.tuning.for_stage(target, cores),
        numerics=options.numerics,
        microarchitecture=options.microarchitecture,
    )


def _optimise_symbolic(module: Any, target: Any, cores: int) -> Any:
    from pipeline.executor.kernels import general

    module = widen_calls(module)
    return general.optimise_symbolic(module, target, cores) if kernels.applies(target) else module


def _lower(module: Any, target: Any, options: CompileOptions) -> tuple[Any, dict[str, np.ndarray]]:
    from tvm import relax

    from pipeline.executor import parameter_checks

    # Weights become arguments: as constants they would be in the library, once for each size of frame.
    inputs = len(module["main"].params)
    main, constants = parameters.lift(module["main"])
    program = tvm.IRModule(dict(module.functions))
    program["main"] = main
    program = relax.transform.Normalize()(program)
    with target:
        program = tvm.transform.Sequential([kernels.pipeline(target), parameter_checks.removal(inputs)])(program)
    if kernels.applies(target) and linker.is_there(host_target.needs(target)[0]):
        from pipeline.executor import kernel_objects

        if (executable := kernel_objects.build(program, target, options.count)) is not None:
            return executable, constants
    executable = relax.build(program, target, relax_pipeline=None, tir_pipeline=kernels.tir_pipeline(target))
    return executable, constants


def _kernel_calls(module: Any) -> tuple[KernelCall, ...] | None:
    from pipeline.executor.kernels import provenance

    rules = kernels.kernels(module)
    calls, errors = provenance.calls(module), provenance.errors(module)
    if calls is None:
        return None
    return tuple(
        KernelCall(name, _rule(rules, name), results, max((errors.get(result, 0.0) for result in results), default=0.0))
        for name, results in calls
    )


def _rule(rules: Mapping[str, Sequence[Any]], function: str) -> str:
    """Return a function's rule; functions outside the module are a library's."""
    return str(rules[function][0]) if function in rules else EXTERNAL
