"""Compilation: the module of a stage -> its code."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.errors import BuildError, reason
from pipeline.executor import (
    core_estimates,
    detection,
    devices,
    host_target,
    kernels,
    linker,
    source_runtimes,
    stage_cache,
)
from pipeline.executor.executable import BY_RULES, CompileOptions, build_executable
from pipeline.executor.stage_code import StageCode, share_parameters
from pipeline.executor.stage_source import ModuleSource, StageSource
from pipeline.system.memory import move_together
from pipeline.system.native_output import quietly
from pipeline.tvm.access import compiler_lock

Progress = Callable[[str], None]


def compile_stage(module: Any, device: Device, cores: int = 1, options: CompileOptions = BY_RULES) -> StageCode:
    """Compile a stage's Relax module for cores of `device`.

    Raises `BuildError` if TVM cannot compile it; its error is the cause.
    """
    compiler = devices.compiler(device)
    if compiler is not None:
        return compiler.compile_stage(ModuleSource(module), device)
    # TVM's compiler has state of the whole process, and is not made for two threads.
    with compiler_lock:
        device_target = target_of(device)
        target = kernels.target_for(device_target)
        key = stage_cache.key_of(module, target, cores, options)
        if (code := stage_cache.find(key)) is not None:
            return code
        work = functools.partial(build_executable, module, target, cores, options)
        executable, constants, calls = quietly(work)
        machine, features = host_target.needs(target)
        facts: dict[str, Any] = {
            "machine": machine,
            "features": features,
            "runtimes": source_runtimes.runtimes(module),
            "calls": calls,
            "processor": core_estimates.name_of(device_target),
        }
        are_objects = any(part.kind == "static_library" for part in executable.mod.imports)
        library = quietly(lambda: link_executable(executable, machine)) if are_objects else None
    del module, work  # which hold the constants too
    constants = move_together(constants)
    if library is None:
        return StageCode(functools.partial(_link_here, executable), constants, executable=executable, **facts)
    code = stage_cache.linked(library, constants, **facts)
    stage_cache.keep(key, code)
    return code


def link_executable(executable: Any, machine: str) -> np.ndarray:
    """Link the objects of an executable's kernels; return the library's bytes."""
    with tempfile.TemporaryDirectory(prefix="soc-pipeline-") as scratch:
        path = Path(scratch) / "stage.so"
        executable.export_library(str(path), fcompile=functools.partial(linker.link, built_for=machine))
        return np.fromfile(path, np.uint8)


def _link_here(executable: Any) -> Any:
    """Link an executable here; TVM needs a C compiler without kernels."""
    with compiler_lock:
        quietly(lambda: executable.jit(fcompile=linker.link))
    return executable


def runs_here(device: Device) -> bool:
    """Test if this machine runs code for a device; raise `BuildError` for bad targets."""
    compiler = devices.compiler(device)
    if compiler is not None:
        return compiler.is_here(device)
    target_of(device)
    return devices.computes(device) and not detection.why_absent(devices.local_device(device))


def target_of(device: Device) -> Any:
    """Return a device's target, or raise `BuildError`."""
    # Only its own machine knows what it is; it has to be reachable while the stage is built.
    if device.target is None and devices.is_remote(device):
        return host_target.target(devices.ask_target(device))
    try:
        return host_target.target(device.target)
    except Exception as error:
        raise BuildError(f"device {device.name!r} has a target that TVM does not take: {reason(error)}") from error


def compile_plan(
    plan: Plan, sources: Iterable[StageSource], progress: Progress, options: CompileOptions = BY_RULES
) -> list[StageCode | None]:
    """Compile every stage or step; null and simulated ones get no code.

    There is a source for each of the plan's units. The options' numerics hold for stages that have none of their own.
    """
    codes: list[StageCode | None] = []
    for stage, source in zip(plan.units, sources, strict=True):
        progress(f"building {stage.name}")
        device = plan.board.device(stage.device)
        try:
            # All replicas have as many cores; a stage without any of its own is built for one.
            cores = max(1, len(stage.cores_of(0)))
            stage_options = replace(
                options,
                numerics=options.numerics.of_stage(stage.options),
                count=functools.partial(_report, progress, stage.name),
            )
            codes.append(
                _compile_family(source, _with_target(device, stage), cores, stage_options)
                if devices.computes(device)
                else None
            )
        except BuildError as error:
            raise BuildError(f"stage {stage.name!r}: {error}") from error.__cause__
    return codes


def _report(progress: Progress, stage: str, done: int, kernels: int) -> None:
    progress(f"building {stage}: kernel {done} of {kernels}")


def _compile_family(source: StageSource, device: Device, cores: int, options: CompileOptions) -> StageCode:
    """Compile a stage for a device and its differing core kinds."""
    code = _compile_source(source, device, cores, options)
    variants = [_compile_source(source, variant, cores, options) for variant in core_estimates.variants(device)]
    return share_parameters([code.with_parameters({}, variants)])[0] if variants else code


def _compile_source(source: StageSource, device: Device, cores: int, options: CompileOptions) -> StageCode:
    compiler = devices.compiler(device)
    if compiler is not None:
        return compiler.compile_stage(source, device)
    return compile_stage(source.module(), device, cores, options)


def _with_target(device: Device, stage: StagePlan) -> Device:
    """Return a device with a stage's target keys."""
    if not stage.options.target:
        return device
    target = device.target
    # Keys of a stage are added to a complete target: alone, they would name no processor.
    if target is None and devices.compiler(device) is None:
        target = dict(target_of(device).export())
    return replace(device, target={**(target or {}), **stage.options.target})
