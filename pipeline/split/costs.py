"""Seconds per fused group on a device, estimated from operations, bytes, and what each family of operators reaches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pipeline.board import Device
from pipeline.split import accelerated
from pipeline.split.families import families, family
from pipeline.split.graph import Graph, Operator

CPU: Mapping[str, float] = {"depthwise": 1.4, "pooling": 0.6, "reduction": 1.2}
"""Share of a core's attainable rates that each family reaches; those left out reach all of it.

They are medians over the 639 fused groups of nine well-known networks, measured on an x86-64 core with AVX-512.  What
is above 1 works on small tensors, which are still in the caches.
"""

OTHERS: Mapping[str, float] = {"depthwise": 0.15, "other": 0.25}
"""The same for other devices, where nothing was measured: few values are used again, so that arithmetic waits."""


def estimate(graph: Graph, device: Device) -> list[float]:
    """Return the estimated seconds of each fused group on one core of `device`; infinite where it cannot run.

    A group takes its start, plus the larger of its arithmetic and its traffic to memory at the device's attainable
    rates (the roofline model), over the share of them that its family reaches.
    """
    if accelerated.applies(device):
        return [each.seconds for each in accelerated.verdicts(graph, groups(graph), device)]
    able = runs(graph, device)
    return [
        _seconds(graph, group, device) if possible else math.inf
        for group, possible in zip(groups(graph), able, strict=True)
    ]


def groups(graph: Graph) -> list[list[Operator]]:
    """Return the operators of each fused group."""
    found: list[list[Operator]] = []
    for operator in graph.operators:
        if operator.group == len(found):
            found.append([])
        found[operator.group].append(operator)
    return found


def runs(graph: Graph, device: Device) -> list[bool]:
    """Return for each fused group whether `device` can run it, by its families and element types."""
    if accelerated.applies(device):
        return [not each.reason for each in accelerated.verdicts(graph, groups(graph), device)]
    return [
        (not device.families or families(group) <= set(device.families))
        and (not device.dtypes or _dtypes(graph, group) <= set(device.dtypes))
        for group in groups(graph)
    ]


def rates(graph: Graph, group: Sequence[Operator], device: Device) -> tuple[float, float]:
    """Return the seconds of a group's arithmetic and of its traffic at the device's attainable rates."""
    made = {name for operator in group for name in operator.outputs}
    read = {graph.tensors[name].dtype for operator in group for name in operator.inputs if name not in made}
    integer = device.int8_flops and read <= {"int8", "uint8"}
    flops = device.int8_flops if integer else device.flops
    return sum(operator.flops for operator in group) / flops, traffic(graph, group) / device.bytes_per_s


def _seconds(graph: Graph, group: Sequence[Operator], device: Device) -> float:
    usual = CPU if device.kind == "cpu" else OTHERS
    name = family(group)
    share = (device.efficiency or {}).get(name) or usual.get(name, 1.0)
    return device.launch_s + max(rates(graph, group, device)) / share


def traffic(graph: Graph, group: Sequence[Operator]) -> int:
    """Return the bytes that a fused group reads and writes; what stays inside it does not count."""
    tensors = sum(graph.tensors[name].nbytes for name in _borders(group))
    return tensors + sum(operator.parameter_bytes for operator in group)


def _borders(group: Sequence[Operator]) -> set[str]:
    made = {name for operator in group for name in operator.outputs}
    return made ^ {name for operator in group for name in operator.inputs}


def _dtypes(graph: Graph, group: Sequence[Operator]) -> set[str]:
    return {np.dtype(graph.tensors[name].dtype).name for name in _borders(group)}
