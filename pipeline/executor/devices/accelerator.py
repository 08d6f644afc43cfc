"""Accelerator: a processor of this machine besides the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any

from pipeline.tvm.access import tvm


@dataclass(frozen=True)
class Accelerator:
    """A processor beside the CPU."""

    kind: str
    index: int
    name: str
    """Name that its driver gives it."""
    memory_bytes: int
    processors: int
    """Multiprocessors or compute units."""
    clock_hz: float
    version: str
    """Compute version, such as CUDA's ``"9.0"``."""
    target: Mapping[str, object] = field(default_factory=dict)


def tvm_indices(kind: str) -> list[int]:
    """Return TVM's device numbers of a kind, empty without driver or support."""
    # TVM does not count its devices, but numbers them without gaps.
    return list(takewhile(lambda index: bool(tvm.device(kind, index).exist), count()))


def describe_tvm_device(kind: str, index: int) -> Accelerator:
    """Query a driver for the properties of a TVM device."""
    device = tvm.device(kind, index)

    def ask(attribute: str) -> Any:
        # Drivers differ in what they can be asked.
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
        # In kHz, as CUDA reports it.
        clock_hz=1e3 * float(ask("max_clock_rate") or 0),
        version=str(ask("compute_version") or ""),
        target={"kind": kind},
    )
