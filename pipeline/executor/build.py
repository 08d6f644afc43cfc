"""Stage modules -> code, and the check that the stages together are the unsplit model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.board import Board, Device
from pipeline.errors import BuildError
from pipeline.executor import devices, parameters, present, processor, schedules
from pipeline.executor.code import KernelCall, StageCode
from pipeline.executor.numerics import EXACT, Numerics
from pipeline.executor.schedules.choices import Choices
from pipeline.memory import together
from pipeline.plans import Plan, StagePlan, TensorSpec
from pipeline.tvm_access import compiler_lock, quiet, tvm

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Parity:
    """How far the chain of stages is from the unsplit model on one seeded random frame.

    Attributes
    ----------
    largest_error : float
        Largest absolute difference of any output element.
    largest_value : float
        Largest absolute value of the unsplit model's outputs.
    tolerance : float
        Allowed error, as a share of `largest_value`.
    seed : int
        Of the random frame.
    """

    largest_error: float
    largest_value: float
    tolerance: float
    seed: int

    @property
    def relative(self) -> float:
        """The error as a share of the largest value."""
        return self.largest_error / self.largest_value if self.largest_value else self.largest_error


class Tuning(Protocol):
    """What was found by tuning, for whichever stage."""

    def for_stage(self, target: Any, cores: int) -> Choices:
        """Return what `schedules.optimise` takes as ``tuned``."""


def compile_stage(  # noqa: PLR0913 - the last three by keyword
    module: Any,
    device: Device,
    cores: int = 1,
    *,
    inner: set[str] | None = None,
    tuning: Tuning | None = None,
    numerics: Numerics = EXACT,
    symbolic: bool = False,
) -> StageCode:
    """Compile one stage's Relax module for `device`, to run on so many of its cores.

    Given `inner`, the module is taken as the inside of a stage: its inputs named there come in the stage's own
    layout, channels last, and its outputs that are made so are added.  Where `tuning` has them, kernels that no rule
    writes and the layouts of those that one does are taken from it.  If the module is `symbolic`, none of its extents
    is known, and all kernels are TVM's.

    Raises
    ------
    BuildError
        If TVM cannot compile it; its error is the cause.
    """
    from tvm import relax

    own = devices.compiler(device)
    if own is not None:
        return own.compiled(module, device)
    with compiler_lock, quiet():
        target = schedules.target_for(target_of(device))
        try:
            tuned = None if tuning is None else tuning.for_stage(target, cores)
            if symbolic:
                module, calls = _symbolic(module, target, cores), None
            else:
                module = schedules.optimise(module, target, cores, inner, tuned=tuned, numerics=numerics)
                calls = _calls(module)
            main, lifted = parameters.lift(module["main"])
            lowered = tvm.IRModule(dict(module.functions))
            lowered["main"] = main
            lowered = relax.transform.Normalize()(lowered)
            executable = relax.build(lowered, target, relax_pipeline=schedules.pipeline(target))
        except Exception as error:
            raise BuildError(f"TVM cannot compile for {target}: {_last_line(error)}") from error
        machine, features = processor.needs(target)
        del module, main, lowered  # they hold the constants
    return StageCode(
        lambda: executable,
        together(lifted),
        executable=executable,
        machine=machine,
        features=features,
        calls=calls,
    )


def _symbolic(module: Any, target: Any, cores: int) -> Any:
    from pipeline.executor.schedules import symbolic

    return symbolic.optimise(module, target, cores) if schedules.applies(target) else module


def _calls(module: Any) -> list[KernelCall] | None:
    from pipeline.executor.schedules import names

    rules = schedules.kernels(module)
    found = names.calls(module)
    return None if found is None else [KernelCall(name, rules[name][0], made) for name, made in found]


def runs_here(device: Device) -> bool:
    """Whether code for a device can run on this machine."""
    own = devices.compiler(device)
    if own is not None:
        return own.is_here(device)
    target_of(device)  # raises if that is none
    return devices.computes(device) and not present.why_absent(devices.here(device))


def target_of(device: Device) -> Any:
    """Return a device's target, or raise `BuildError` if it is none."""
    if device.target is None and devices.elsewhere(device):
        from pipeline.executor.devices import remote

        return processor.target(remote.target(device))
    try:
        return processor.target(device.target)
    except Exception as error:
        raise BuildError(f"device {device.name!r} has a target that TVM does not take: {_last_line(error)}") from error


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def compile_plan(plan: Plan, modules: Iterable[Any], progress: Progress, **options: Any) -> list[StageCode | None]:
    """Compile each stage for its own device; a device that computes nothing (null, simulated) gets no code.

    Parameters
    ----------
    plan : Plan
    modules : iterable of tvm.IRModule
        One for each stage.
    progress : callable
        Told what is being done.
    **options
        As for `compile_stage`: ``tuning``, ``numerics``, ``symbolic``.
    """
    codes: list[StageCode | None] = []
    for stage, module in zip(plan.stages, modules, strict=True):
        progress(f"building {stage.name}")
        device = plan.board.device(stage.device)
        try:
            cores = max(1, len(stage.cores_of(0)))
            codes.append(compile_stage(module, device, cores, **options) if devices.computes(device) else None)
        except BuildError as error:
            raise BuildError(f"stage {stage.name!r}: {error}") from error.__cause__
    return codes


Built = tuple[StagePlan, StageCode]


def check_parity(
    plan: Plan, stages: Sequence[Built], expected: Mapping[str, np.ndarray], *, tolerance: float, seed: int = 0
) -> Parity:
    """Run one seeded random frame through the stages.

    Parameters
    ----------
    plan : Plan
    stages : sequence of (StagePlan, StageCode)
    expected : mapping of str to numpy.ndarray
        The outputs of the unsplit model for ``random_frame(plan.inputs, seed)``.
    tolerance : float
        Allowed error, as a share of the largest output.
    seed : int
        Of the frame.

    Raises
    ------
    BuildError
        If an output differs by more than `tolerance` of the largest value, or is NaN on one side only.
    """
    live = through(plan.board, stages, random_frame(plan.inputs, seed))
    pairs = [(_real(expected[spec.name]), _real(live[spec.name])) for spec in plan.outputs]
    for spec, (whole, parts) in zip(plan.outputs, pairs, strict=True):
        if not np.array_equal(_not_finite(whole), _not_finite(parts), equal_nan=True):
            raise BuildError(
                f"output {spec.name!r} is not finite in the stages where it is in the unsplit model, or the reverse"
            )
    error = max(_largest(parts - whole) for whole, parts in pairs)
    parity = Parity(error, max(_largest(whole) for whole, _ in pairs), tolerance, seed)
    if parity.relative > tolerance:
        raise BuildError(
            f"the stages differ from the unsplit model by {parity.largest_error:.3g}, {parity.relative:.3g} of the "
            f"largest output {parity.largest_value:.3g}; allowed is {tolerance:.3g}"
        )
    return parity


def random_frame(specs: Sequence[TensorSpec], seed: int) -> dict[str, np.ndarray]:
    """Return normally distributed floats, or small whole numbers, for each tensor."""
    generator = np.random.default_rng(seed)
    return {spec.name: _random(generator, spec) for spec in specs}


def _random(generator: np.random.Generator, spec: TensorSpec) -> np.ndarray:
    kind = np.dtype(spec.dtype)
    if np.issubdtype(kind, np.floating):
        return generator.standard_normal(spec.shape).astype(kind)
    return generator.integers(0, 2, spec.shape).astype(kind)


def through(board: Board, stages: Sequence[Built], frame: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return all tensors of a frame that has gone through `stages`, by name."""
    live = dict(frame)
    for stage, code in stages:
        runtime = devices.create(devices.here(board.device(stage.device)))
        program = runtime.load(stage, code)
        made = runtime.run(program, [runtime.copy_in(live[spec.name]) for spec in stage.inputs])
        live |= {spec.name: runtime.copy_out(tensor).copy() for spec, tensor in zip(stage.outputs, made, strict=True)}
    return live


def _real(array: np.ndarray) -> NDArray[np.float64]:
    return np.asarray(array, np.float64)


def _not_finite(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return infinities and NaN where they are, and zeros elsewhere."""
    return np.where(np.isfinite(array), 0, array)


def _largest(array: NDArray[np.float64]) -> float:
    """Largest absolute value, where it is finite."""
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0
