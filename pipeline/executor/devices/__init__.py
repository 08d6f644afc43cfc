"""The kinds of device, each loaded only when a board asks for it."""

from __future__ import annotations

import importlib

from pipeline.board import Device
from pipeline.errors import BoardError, near
from pipeline.executor.devices.base import DeviceRuntime, OwnCompiler
from pipeline.remote.address import alternatives

__all__ = ["KINDS", "DeviceRuntime", "OwnCompiler", "compiler", "computes", "create", "elsewhere", "here"]

KINDS = {
    "cpu": "pipeline.executor.devices.cpu:CpuRuntime",
    "cuda": "pipeline.executor.devices.cuda:CudaRuntime",
    "null": "pipeline.executor.devices.null:NullRuntime",
    "python": "pipeline.executor.devices.python:PythonRuntime",
    "remote": "pipeline.executor.devices.remote:RemoteRuntime",
    "rpc": "pipeline.executor.devices.remote:RemoteRuntime",
    "simulated": "pipeline.executor.devices.simulated:SimulatedRuntime",
    "vta": "pipeline.executor.devices.vta:VtaRuntime",
}
"""Kind of device -> ``"module:class"`` of its adapter."""


def create(device: Device) -> DeviceRuntime:
    """Return a runtime for `device`; nothing is opened yet.

    Parameters
    ----------
    device : Device
        Its kind chooses the adapter.

    Raises
    ------
    BoardError
        If no adapter drives this kind of device.
    """
    if device.kind not in KINDS:
        raise BoardError(
            f"device {device.name!r} is of kind {device.kind!r}, which nothing drives; "
            f"there are {', '.join(sorted(KINDS))}{near(device.kind, KINDS)}"
        )
    return _adapter(device.kind)(device)


def compiler(device: Device) -> type[OwnCompiler] | None:
    """Return what compiles stages for `device`; None stands for TVM."""
    found = _adapter(device.kind) if device.kind in KINDS else None
    return found if found is not None and issubclass(found, OwnCompiler) else None


def _adapter(kind: str) -> type[DeviceRuntime]:
    module, _, name = KINDS[kind].partition(":")
    found: type[DeviceRuntime] = getattr(importlib.import_module(module), name)
    return found


def computes(device: Device) -> bool:
    """Whether stages on `device` are compiled; the others need none, or a function."""
    kind = alternatives(device.address)[0].device if device.kind == "remote" and device.address else device.kind
    return kind not in ("null", "python", "simulated")


def elsewhere(device: Device) -> bool:
    """Whether `device` belongs to another machine, whose processor may be of another kind."""
    return device.kind in ("remote", "rpc")


def here(device: Device) -> Device:
    """Return the device of this machine that runs the same code as `device`, if that belongs to another one."""
    return Device(device.name, "cpu", target=device.target) if elsewhere(device) else device
