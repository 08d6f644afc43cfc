"""Core kinds: the processor of every core of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.core.board.board import Cluster, Device
from pipeline.executor import host_target, topology

# Arm's part numbers, as LLVM calls the cores; those of phones and of boards (Linux, arch/arm64/include/asm/cputype.h).
_ARM = 0x41
_PARTS = {
    0xD03: "cortex-a53", 0xD04: "cortex-a35", 0xD05: "cortex-a55", 0xD07: "cortex-a57", 0xD08: "cortex-a72",
    0xD09: "cortex-a73", 0xD0A: "cortex-a75", 0xD0B: "cortex-a76", 0xD0C: "neoverse-n1", 0xD0D: "cortex-a77",
    0xD40: "neoverse-v1", 0xD41: "cortex-a78", 0xD42: "cortex-a78ae", 0xD44: "cortex-x1", 0xD46: "cortex-a510",
    0xD47: "cortex-a710", 0xD48: "cortex-x2", 0xD49: "neoverse-n2", 0xD4B: "cortex-a78c", 0xD4D: "cortex-a715",
    0xD4E: "cortex-x3",
}  # fmt: skip


def processor(cores: Iterable[int], device: Device | None = None, root: Path = topology.ROOT) -> str:
    """Return the common LLVM processor of these cores, empty if mixed or unknown.

    Linux tells on Arm; elsewhere the clusters of `device` do.
    """
    names = {_part(core, root) or _cluster_processor(device, core) for core in cores}
    return names.pop() if len(names) == 1 else ""


def at_cluster(device: Device, cluster: Cluster) -> Device:
    """Restrict a device to a cluster's cores."""
    target = device.target if device.target is not None else dict(host_target.target(None).export())
    return replace(device, target={**target, **(cluster.target or {})})


def with_targets(clusters: Sequence[Cluster], root: Path = topology.ROOT) -> tuple[Cluster, ...]:
    """Return this machine's clusters with Linux's processor names."""
    names = [processor(cluster.cores, root=root) for cluster in clusters]
    return tuple(
        replace(cluster, target={"mcpu": name}) if name else cluster
        for cluster, name in zip(clusters, names, strict=True)
    )


def _cluster_processor(device: Device | None, core: int) -> str:
    clusters = device.clusters if device is not None else ()
    target = next((cluster.target for cluster in clusters if core in cluster.cores), None)
    return str((target or {}).get("mcpu", ""))


def _part(core: int, root: Path) -> str:
    """Return an Arm core's name from its main identification register."""
    try:
        register = int((root / f"cpu/cpu{core}/regs/identification/midr_el1").read_text(), 16)
    except (OSError, ValueError):
        return ""
    # Arm Architecture Reference Manual: implementer in bits 31 to 24, part number in 15 to 4.
    return _PARTS.get(register >> 4 & 0xFFF, "") if register >> 24 & 0xFF == _ARM else ""
