"""Costs: estimated seconds per group, from operations, bytes and families' rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.stage_options import DEFAULT_PRECISION, NO_OPTIONS, StageOptions
from pipeline.split import offload
from pipeline.split.graph import Graph
from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.group_work import GroupWork, WorkTable, group_works, groups

# Amdahl's share of the work; the rest stands for what one thread does alone in each kernel.
PARALLEL = 0.8
"""Share of a group's measured time that several threads divide among them; waiting for the memory is in the rest."""

PARALLEL_ARITHMETIC = 0.9
"""The same of estimated arithmetic, where the bytes per second of the memory are known and count by themselves."""

BARRIER_S = 10e-6
"""Seconds that several threads lose in each group by waiting for each other, for estimates."""

WINOGRAD_GAIN = 1.8
"""Rate of convolutions by Winograd's transforms over the direct one. Of 4 times fewer products, transforms and more
bytes per product leave so much."""

# Windows of 3x3 become tiles of 6x6.
_WINOGRAD_WEIGHTS = 4

_FLOAT_BYTES = 4


def estimate(graph: Graph, device: Device, options: StageOptions = NO_OPTIONS, threads: int = 1) -> list[float]:
    """Return each group's estimated seconds on some cores, or infinity.

    A group takes its start, its arithmetic at the share of the rate that its family reaches, and its traffic to memory.
    Published times fit their sum better than the larger of both (the roofline model).
    """
    if offload.applies(device):
        return [verdict.seconds for verdict in offload.verdicts(graph, groups(graph), device)]
    return estimate_works(group_works(graph), device, options, threads)


def estimate_works(
    works: Sequence[GroupWork], device: Device, options: StageOptions = NO_OPTIONS, threads: int = 1
) -> list[float]:
    """Return the seconds of `estimate` from groups' work."""
    arithmetic_s, traffic_s = rates(WorkTable.of(works), device, options)
    efficiency = device.family_efficiency
    arithmetic_s = arithmetic_s / np.array([efficiency.get(work.family, 1.0) for work in works])
    seconds = device.launch_s + _threaded(arithmetic_s, traffic_s, device, threads)
    return [
        (work.compiled and work.compiled.seconds) or second if _fits(work, device) else math.inf
        for work, second in zip(works, seconds.tolist(), strict=True)
    ]


def parallel_seconds(seconds: Array, threads: int, groups: int = 1) -> Array:
    """Return the estimated seconds of measured ones under several threads."""
    if threads <= 1:
        return seconds
    # Amdahl's law, and a barrier at the end of each kernel.
    return seconds * (1 - PARALLEL + PARALLEL / threads) + BARRIER_S * groups


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


def rates(work: GroupWork | WorkTable, device: Device, options: StageOptions = NO_OPTIONS) -> tuple[Array, Array]:
    """Return arithmetic and traffic seconds of one core at attainable rates."""
    precision = options.precision or DEFAULT_PRECISION
    narrow_flops = narrow_rate(device, precision)
    # Layers at the graph's ends stay float32.
    is_half = np.logical_and(narrow_flops > 0, np.logical_not(work.is_end))
    floats = np.where(is_half, narrow_flops, device.flops)
    flops = np.where(work.reads_bytes, device.int8_flops or device.flops, floats)
    operations: Any = work.flops
    traffic: Any = work.traffic
    # Accelerators multiply directly, or their published times have it in.
    if precision != "float32-exact" and device.capabilities.is_processor:
        fewer, more = work.winograd_flops * (1 - 1 / WINOGRAD_GAIN), work.winograd_bytes * (_WINOGRAD_WEIGHTS - 1)
        # A build transforms only where that is faster.
        share = device.family_efficiency.get("convolution", 1.0)
        is_faster = ~np.asarray(work.reads_bytes) & ~is_half & (fewer / flops / share > more / device.bytes_per_s)
        operations, traffic = operations - is_faster * fewer, traffic + is_faster * more
    width = device.element_bytes or np.where(is_half, 2, _FLOAT_BYTES)
    narrow = 1 - work.float_share * (1 - width / _FLOAT_BYTES)
    traffic_s = np.asarray(traffic * narrow / device.bytes_per_s) + _refill_s(
        np.asarray(work.parameters * narrow), device
    )
    # Results of integers are scaled and stored by the same vectors as floats.
    return operations / flops + device.result_flops * work.results / floats, traffic_s


def narrow_rate(device: Device, precision: str) -> float:
    """Return a core's operations per second in products of 16 bits; 0 if a precision or device has none."""
    rates = {"bfloat16": device.bfloat16_flops, "float16": device.float16_flops}
    return rates.get(precision, 0.0) if precision != "auto" else next(filter(None, rates.values()), 0.0)


def _refill_s(parameters: Array, device: Device) -> Array | float:
    """Return the seconds for parameters that a chip does not keep between frames."""
    total = np.sum(parameters)
    if not device.refill_bytes_per_s or total <= device.resident_bytes:
        return 0.0
    # A pipeline of layers is loaded part by part; other chips fetch what is missing.
    missing = 1.0 if device.dataflow else 1 - device.resident_bytes / total
    return parameters * missing / device.refill_bytes_per_s


def describe_misfit(work: GroupWork, device: Device) -> str:
    """Return why a device runs no group of such work, or ""."""
    kind = device.capabilities
    if work.compiled:
        return work.compiled.describe_misfit(device)
    # What computes nothing takes any stage.
    if kind.computes and not kind.has_islands and work.has_islands:
        return "it does not run what the model's own runtime computes"
    if device.families and (families := work.families - set(device.families)):
        return f"it has no operators of {' and '.join(sorted(families))}"
    if device.dtypes and (dtypes := work.dtypes - set(device.dtypes)):
        return f"it has no tensors of {' and '.join(sorted(dtypes))}"
    return ""


def _fits(work: GroupWork, device: Device) -> bool:
    return not describe_misfit(work, device)


def _threaded(arithmetic_s: Array, traffic_s: Array, device: Device, threads: int) -> Array:
    """Return groups' seconds without their start, on some cores of a device."""
    if not device.memory_bytes_per_s:
        return parallel_seconds(arithmetic_s + traffic_s, threads)
    # Each core moves its part, up to what the memory gives to all of them.
    traffic_s = traffic_s * max(1 / threads, device.bytes_per_s / device.memory_bytes_per_s)
    arithmetic_s = arithmetic_s * (1 - PARALLEL_ARITHMETIC + PARALLEL_ARITHMETIC / threads)
    return arithmetic_s + traffic_s + (BARRIER_S if threads > 1 else 0.0)
