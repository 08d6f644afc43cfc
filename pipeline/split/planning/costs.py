"""Costs: seconds per fused group on a device, estimated from operations, bytes, and the rates that families reach."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pipeline.core import packed_model
from pipeline.core.board import Device
from pipeline.core.board_checks import FAMILIES
from pipeline.split import offload
from pipeline.split.graph import Graph, Operator
from pipeline.split.operators import operator_family

# Whatever else is in a group takes longer, and is what its family says.
_LIGHTEST = ("elementwise", "movement")


def estimate(graph: Graph, device: Device) -> list[float]:
    """Return the estimated seconds of each fused group on one core of `device`; infinite where it cannot run.

    A group takes its start, plus the larger of its arithmetic and its traffic to memory at the device's attainable
    rates (the roofline model), over the share of them that its family reaches.
    """
    if offload.applies(device):
        return [each.seconds for each in offload.verdicts(graph, groups(graph), device)]
    return [_seconds(graph, group, device) if _fits(graph, group, device) else math.inf for group in groups(graph)]


def group_family(group: Sequence[Operator]) -> str:
    """Return the family of a fused group: that of its heaviest operator, whose loops the others join."""
    families = group_families(group)
    return next((name for name in FAMILIES if name in families and name not in _LIGHTEST), None) or (
        "elementwise" if "elementwise" in families else "movement"
    )


def group_families(group: Sequence[Operator]) -> set[str]:
    """Return the families of all operators of a fused group."""
    return {operator_family(each.kind, each.lines[0].value if each.lines else None) for each in group}


def groups(graph: Graph) -> list[list[Operator]]:
    """Return the operators of each fused group."""
    operators: list[list[Operator]] = []
    for operator in graph.operators:
        if operator.group == len(operators):
            operators.append([])
        operators[operator.group].append(operator)
    return operators


def runs(graph: Graph, device: Device) -> list[bool]:
    """Return for each fused group whether `device` can run it, by its families and element types."""
    if offload.applies(device):
        return [not each.reason for each in offload.verdicts(graph, groups(graph), device)]
    return [_fits(graph, group, device) for group in groups(graph)]


def fallback_share(graph: Graph, seconds: Sequence[float]) -> float:
    """Return the share of the groups' seconds that the model's own runtime takes, 0 to 1."""
    total = sum(seconds)
    fallback = sum(each for each, group in zip(seconds, groups(graph), strict=True) if _has_islands(group))
    return fallback / total if total else 0.0


def _has_islands(group: Sequence[Operator]) -> bool:
    return any(operator.kind in packed_model.KINDS for operator in group)


def _fits(graph: Graph, group: Sequence[Operator], device: Device) -> bool:
    kind = device.capabilities
    # What computes nothing takes any stage.
    if kind.computes and not kind.has_islands and _has_islands(group):
        return False
    return (not device.families or group_families(group) <= set(device.families)) and (
        not device.dtypes or _dtypes(graph, group) <= set(device.dtypes)
    )


def rates(graph: Graph, group: Sequence[Operator], device: Device) -> tuple[float, float]:
    """Return the seconds of a group's arithmetic and of its traffic at the device's attainable rates."""
    flops = device.int8_flops if device.int8_flops and _reads_bytes(graph, group) else device.flops
    return sum(operator.flops for operator in group) / flops, traffic(graph, group) / device.bytes_per_s


def _reads_bytes(graph: Graph, group: Sequence[Operator]) -> bool:
    """Check whether all that a group reads is bytes: whatever is inside, sums of their products take the time."""
    results = {name for operator in group for name in operator.outputs}
    reads = (name for operator in group for name in operator.inputs if name not in results)
    return all(graph.tensors[name].dtype in {"int8", "uint8"} for name in reads)


def _seconds(graph: Graph, group: Sequence[Operator], device: Device) -> float:
    name = group_family(group)
    share = (device.efficiency or {}).get(name) or device.capabilities.efficiency.get(name, 1.0)
    return device.launch_s + max(rates(graph, group, device)) / share


def traffic(graph: Graph, group: Sequence[Operator]) -> int:
    """Return the bytes that a fused group reads and writes; what stays inside it does not count."""
    # Kernels of a fused group keep what is between their operators in registers and caches.
    tensors = sum(graph.tensors[name].nbytes for name in _borders(group))
    return tensors + sum(operator.parameter_bytes for operator in group)


def group_traffic(graph: Graph) -> np.ndarray:
    """Return the bytes that each fused group reads and writes."""
    return np.array([traffic(graph, group) for group in groups(graph)], np.float64)


def _borders(group: Sequence[Operator]) -> set[str]:
    results = {name for operator in group for name in operator.outputs}
    # Each tensor inside of the group is both a result and an input, so that these cancel.
    return results ^ {name for operator in group for name in operator.inputs}


def _dtypes(graph: Graph, group: Sequence[Operator]) -> set[str]:
    return {np.dtype(graph.tensors[name].dtype).name for name in _borders(group)}
