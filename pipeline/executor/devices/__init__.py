"""Adapters of the device kinds, loaded on demand."""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Sequence

from pipeline.core.board.board import Device
from pipeline.core.board.device_kinds import describe_unknown, device_kind
from pipeline.core.plan.device_map import code_kind
from pipeline.errors import BoardError, PipelineError, reason
from pipeline.executor.devices.base import DeviceRuntime, OwnCompiler

__all__ = [
    "DeviceRuntime",
    "OwnCompiler",
    "adapter",
    "ask_target",
    "compiler",
    "computes",
    "create",
    "is_remote",
    "local_device",
    "thread_kind",
    "why_absent",
]


def create(device: Device) -> DeviceRuntime:
    """Return a runtime for `device`; nothing is opened yet.

    Raises `BoardError` if no adapter drives this kind of device.
    """
    if not device.capabilities.adapter:
        raise BoardError(
            f"device {device.name!r} is of kind {device.kind!r}, which nothing drives; {describe_unknown(device.kind)}"
        )
    return adapter(device.kind)(device)


def adapter(kind: str) -> type[DeviceRuntime]:
    """Import the adapter of a device kind.

    Raises `BoardError` if there is none where the kind's entry says, which may be another package's.
    """
    # By name, since a driver's library may be missing where boards are only planned for.
    adapter = device_kind(kind).adapter
    title = f"the adapter {adapter!r} of devices of kind {kind!r}"
    module, _, name = adapter.partition(":")
    try:
        runtime = getattr(importlib.import_module(module), name)
    except PipelineError:
        raise
    # Whatever the code of others may raise on import.
    except Exception as error:
        raise BoardError(f"{title} cannot be imported: {reason(error)}") from error
    if not (isinstance(runtime, type) and issubclass(runtime, DeviceRuntime)):
        raise BoardError(f"{title} is no DeviceRuntime; it is {runtime!r}")
    return runtime


def thread_kind(device: Device, cores: Sequence[int]) -> Hashable:
    """Return the threads' kind for `device` and `cores`; see `DeviceRuntime.thread_kind`."""
    return create(device).thread_kind(cores)


def compiler(device: Device) -> type[OwnCompiler] | None:
    """Return the stage compiler of `device`; None means TVM."""
    runtime = adapter(device.kind) if device.capabilities.adapter else DeviceRuntime
    return runtime if issubclass(runtime, OwnCompiler) else None


def computes(device: Device) -> bool:
    """Test if stages on `device` are compiled."""
    return device_kind(code_kind(device)).computes


def why_absent(device: Device) -> str:
    """Explain why a device's stages cannot run here, empty if they can."""
    return adapter(device.kind).why_absent(device) if compiler(device) is not None else ""


def ask_target(device: Device) -> dict[str, object]:
    """Ask the machine of `device` for its target; see `DeviceRuntime.ask_target`."""
    return adapter(device.kind).ask_target(device)


def is_remote(device: Device) -> bool:
    """Test if a device belongs to another machine."""
    return device.capabilities.is_remote


def local_device(device: Device) -> Device:
    """Return this machine's equivalent of a remote `device`."""
    # Cores, address and speed are the other machine's.
    return Device(device.name, code_kind(device), target=device.target) if is_remote(device) else device
