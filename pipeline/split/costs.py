"""Seconds per fused group on a device, estimated from operations and bytes."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.board import Device
from pipeline.split.graph import Graph, Operator


def estimate(graph: Graph, device: Device) -> list[float]:
    """Return the estimated seconds of each fused group on one core of `device`.

    A group takes its start, plus the larger of its arithmetic and its traffic to memory at the device's
    attainable rates (the roofline model).
    """
    groups: list[list[Operator]] = []
    for operator in graph.operators:
        if operator.group == len(groups):
            groups.append([])
        groups[operator.group].append(operator)
    return [_seconds(graph, group, device) for group in groups]


def _seconds(graph: Graph, group: Sequence[Operator], device: Device) -> float:
    arithmetic = sum(operator.flops for operator in group) / device.flops
    return device.launch_s + max(arithmetic, _traffic(graph, group) / device.bytes_per_s)


def _traffic(graph: Graph, group: Sequence[Operator]) -> int:
    """Bytes that a fused group reads and writes; what stays inside it does not count."""
    made = {name for operator in group for name in operator.outputs}
    read = {name for operator in group for name in operator.inputs}
    tensors = sum(graph.tensors[name].nbytes for name in made ^ read)
    return tensors + sum(operator.parameter_bytes for operator in group)
