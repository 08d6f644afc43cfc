"""Detection of this machine's devices, and reasons against measuring a board's."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipeline.core.board.board import Device
from pipeline.core.board.device_kinds import kind_names
from pipeline.errors import MissingExtra
from pipeline.executor import devices
from pipeline.executor.devices.model_runtime import ModelRuntime

if TYPE_CHECKING:
    from pipeline.executor.devices.accelerator import Accelerator


def detectable_kinds() -> tuple[str, ...]:
    """Return the detectable kinds of device besides the CPU."""
    return kind_names(lambda kind: kind.detectable)


def accelerators() -> list[Accelerator]:
    """Detect devices besides the CPU, none where a driver is missing."""
    return [accelerator for kind in detectable_kinds() for accelerator in _detect(kind)]


def _detect(kind: str) -> Sequence[Accelerator]:
    # What drives it may be in a package that is not here.
    with contextlib.suppress(MissingExtra):
        return devices.adapter(kind).detect()
    return ()


def why_not_found(kind: str) -> str:
    """Return why this machine lacks a device kind."""
    return why_unusable(Device(kind, kind))


def why_unusable(device: Device) -> str:
    """Explain why a device's runtime cannot use it here, empty if it can."""
    try:
        return devices.adapter(device.kind).why_absent(device)
    except MissingExtra as error:
        return str(error)


def runtimes() -> dict[str, tuple[str, ...]]:
    """Return the targets of every installed runtime, by name with version."""
    adapters = [devices.adapter(kind) for kind in kind_names(lambda kind: bool(kind.model_format))]
    installed = [adapter for adapter in adapters if issubclass(adapter, ModelRuntime) and adapter.is_installed()]
    return {runtime.version(): tuple(runtime.find_targets()) for runtime in installed}


def why_absent(device: Device) -> str:
    """Explain why `device` cannot be measured here, empty if it can."""
    # In this order: each answer is only worth asking for if the ones before it are no.
    if device.address:
        return "it is on another machine; run 'soc-pipeline profile' there"
    if not devices.computes(device):
        return f"devices of kind {device.kind!r} compute nothing"
    if not device.capabilities.adapter:
        return f"nothing drives devices of kind {device.kind!r} yet"
    if devices.compiler(device) is not None and not device.capabilities.model_format:
        return f"what devices of kind {device.kind!r} take is estimated by their own compiler"
    # Dozens of stages would be compiled, by a tool that may take minutes for one.
    if any(key in (device.target or {}) for key in device.capabilities.command_keys):
        return "what a command compiles is not measured"
    return devices.adapter(device.kind).why_absent(device)
