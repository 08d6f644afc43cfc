"""Stages: devices' runtimes by their own answers, and what a bundle was built for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pipeline.doctor.check import MISSING, OK, WRONG, Check, problem_check
from pipeline.doctor.machine import Machine
from pipeline.doctor.request import Request
from pipeline.executor import host_target, source_runtimes
from pipeline.executor.manifest import Manifest

SMALLER = "end other programs; or build it quantised (soc-pipeline quantize), or with --queue-depth 1"


def examine(machine: Machine, request: Request) -> Iterator[Check]:
    """Ask the runtimes of all devices, and compare a bundle with the machine."""
    for device in request.devices:
        if device.capabilities.is_processor or not device.capabilities.computes:
            continue
        if problem := machine.why_absent(device):
            yield problem_check(f"device {device.name}", MISSING, problem)
        else:
            yield Check(f"device {device.name}", OK, f"its runtime of kind {device.kind} is here")
    if request.bundle is not None:
        local = [device.name for device in request.devices]
        yield from _bundle(machine, request.bundle, local)
        yield from _memory(machine, request.bundle, local)


def _bundle(machine: Machine, bundle: Manifest, local: Sequence[str]) -> Iterator[Check]:
    if problem := host_target.other_tvm(bundle.tvm):
        yield Check("bundle", WRONG, f"it {problem}", "build it again with this machine's version")
    flags = host_target.flags(machine.root, machine.architecture)
    for stage, files in bundle.pairs:
        if files is None or stage.device.partition("/")[0] not in local:
            continue
        name = f"stage {stage.name}"
        if problem := host_target.misfit(files.machine, files.features, flags, machine.architecture):
            yield problem_check(name, WRONG, problem)
        elif problem := source_runtimes.why_missing(files.runtimes):
            yield problem_check(name, MISSING, problem)
        else:
            yield Check(name, OK, " ".join(("for", files.machine or "any machine", *files.features)))


def _memory(machine: Machine, bundle: Manifest, local: Sequence[str]) -> Iterator[Check]:
    """Compare the least that a bundle takes with the free memory: code, parameters, and tensors of frames."""
    plan = bundle.plan
    pairs = [(stage, files) for stage, files in bundle.pairs if files and stage.device.partition("/")[0] in local]
    parts = {part.file: part.nbytes for _, files in pairs for part in (files.library, files.parameters)}
    tensors = sum(spec.nbytes for specs in (plan.inputs, *(stage.outputs for stage in plan.stages)) for spec in specs)
    needed = -(-(sum(parts.values()) + plan.frames_in_flight * tensors) >> 20)
    if available := re.search(r"MemAvailable:\s+(\d+)", machine.text("/proc/meminfo")):
        free = int(available[1]) >> 10
        # https://github.com/ggml-org/whisper.cpp/issues/395
        state, remedy = (OK, "") if free >= needed else (WRONG, SMALLER)
        yield Check("bundle's memory", state, f"{needed} MiB at least, of {free} MiB that are free", remedy)
