"""What TVM finds on this machine beside the CPU, and whether a board's device is here to be measured."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any

from pipeline.board import Device
from pipeline.errors import PipelineError
from pipeline.executor import devices, processor
from pipeline.tvm_access import tvm

ACCELERATORS = ("cuda", "opencl", "vulkan")


@dataclass(frozen=True)
class Accelerator:
    """A processor beside the CPU.

    Attributes
    ----------
    kind : str
        One of `ACCELERATORS`.
    index : int
    name : str
        As its driver calls it.
    memory_bytes : int
    processors : int
        Multiprocessors or compute units.
    clock_hz : float
    version : str
        Of what it can compute, such as CUDA's ``"9.0"``.
    """

    kind: str
    index: int
    name: str
    memory_bytes: int
    processors: int
    clock_hz: float
    version: str

    @property
    def driven(self) -> bool:
        """Whether stages can run on it."""
        return self.kind in devices.KINDS


def accelerators() -> list[Accelerator]:
    """Return what this build of TVM finds; nothing where it was built without, or a driver is missing."""
    return [_described(kind, index) for kind in ACCELERATORS for index in _indices(kind)]


def _indices(kind: str) -> list[int]:
    return list(takewhile(lambda index: bool(tvm.device(kind, index).exist), count()))


def _described(kind: str, index: int) -> Accelerator:
    device = tvm.device(kind, index)

    def ask(attribute: str) -> Any:
        # Each kind of device tells other things.
        try:
            return getattr(device, attribute)
        except Exception:  # noqa: BLE001 - whatever a driver answers, the device is there
            return None

    return Accelerator(
        kind=kind,
        index=index,
        name=str(ask("device_name") or kind),
        memory_bytes=int(ask("total_global_memory") or 0),
        processors=int(ask("multi_processor_count") or 0),
        clock_hz=1e3 * float(ask("max_clock_rate") or 0),
        version=str(ask("compute_version") or ""),
    )


def why_absent(device: Device) -> str:
    """Say why stages of `device` cannot be run and measured on this machine; an empty string if they can."""
    if device.address:
        return "it is on another machine; run 'soc-pipeline profile' there"
    if not devices.computes(device):
        return f"devices of kind {device.kind!r} compute nothing"
    if device.kind not in devices.KINDS:
        return f"nothing drives devices of kind {device.kind!r} yet"
    if device.kind == "cpu":
        try:
            return processor.misfit(*processor.needs(processor.target(device.target))).partition(";")[0]
        except Exception as error:  # noqa: BLE001 - a target that TVM does not take
            raise PipelineError(f"device {device.name!r} has a target that TVM does not take: {error}") from None
    if device.kind in ACCELERATORS and device.index not in _indices(device.kind):
        return f"TVM finds no {device.kind} device {device.index} here"
    own = devices.compiler(device)
    return "" if own is None else f"what devices of kind {device.kind!r} take is estimated by their own compiler"
