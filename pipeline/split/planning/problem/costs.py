"""Costs: estimated seconds per group, from operations, bytes and families' rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pipeline.core.board.board import Device
from pipeline.core.plan.stage_options import NO_OPTIONS, StageOptions
from pipeline.split import offload
from pipeline.split.graph import Graph
from pipeline.split.planning.problem.group_work import GroupWork, group_works, groups


def estimate(graph: Graph, device: Device, options: StageOptions = NO_OPTIONS) -> list[float]:  # noqa: ARG001
    """Return each group's estimated seconds on a core, or infinity.

    A group takes its start, plus the larger of its arithmetic and its traffic to memory at the device's attainable
    rates (the roofline model), over the share of them that its family reaches.
    """
    if offload.applies(device):
        return [verdict.seconds for verdict in offload.verdicts(graph, groups(graph), device)]
    efficiency = {**device.capabilities.efficiency, **(device.efficiency or {})}
    return [_seconds(work, device, efficiency) if _fits(work, device) else math.inf for work in group_works(graph)]


def runs(graph: Graph, device: Device) -> list[bool]:
    """Check each group's families and element types on a device."""
    if offload.applies(device):
        return [not verdict.reason for verdict in offload.verdicts(graph, groups(graph), device)]
    return [_fits(work, device) for work in group_works(graph)]


def fallback_share(graph: Graph, seconds: Sequence[float]) -> float:
    """Return the own runtime's share of the groups' seconds, 0 to 1."""
    total = sum(seconds)
    fallback = sum(group_s for group_s, work in zip(seconds, group_works(graph), strict=True) if work.has_islands)
    return fallback / total if total else 0.0


def rates(work: GroupWork, device: Device) -> tuple[float, float]:
    """Return a group's arithmetic and traffic seconds at attainable rates."""
    flops = device.int8_flops if device.int8_flops and work.reads_bytes else device.flops
    return work.flops / flops, work.traffic / device.bytes_per_s


def _fits(work: GroupWork, device: Device) -> bool:
    kind = device.capabilities
    # What computes nothing takes any stage.
    if kind.computes and not kind.has_islands and work.has_islands:
        return False
    return (not device.families or work.families <= set(device.families)) and (
        not device.dtypes or work.dtypes <= set(device.dtypes)
    )


def _seconds(work: GroupWork, device: Device, efficiency: Mapping[str, float]) -> float:
    return device.launch_s + max(rates(work, device)) / efficiency.get(work.family, 1.0)
