"""Estimated kernel speeds on board cores, from ``bench/arm.py --table``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from pipeline.core.board.board import Device
from pipeline.executor import core_kinds, devices, host_target
from pipeline.executor.kernels import microarchitecture

TABLE = Path(__file__).with_suffix(".json")

WORTHWHILE = 1.05
"""Least speedup of a core's own code over another core's. From here on a bundle has both."""

Rates = dict[str, float]
"""A figure for ``"float32"`` and for ``"int8"``."""


class CoreEstimates(msgspec.Struct, frozen=True):
    """Estimates of LLVM's machine-code analyser, over loops of several networks."""

    command: str
    llvm: str
    """Command and LLVM version that made them."""
    products_per_cycle: dict[str, Rates]
    """Core -> multiply-adds in a cycle of the kernels that are built for it."""
    foreign_code: dict[str, dict[str, Rates]]
    """Core -> another core -> speed of the other one's kernels on it, as a share of that of its own."""


@cache
def table() -> CoreEstimates:
    """Return the estimates."""
    return msgspec.json.decode(TABLE.read_bytes(), type=CoreEstimates)


def gain(other_target: Any, own_target: Any) -> float:
    """Return the best speedup of a core's own code over another's.

    For cores that are not in the table, the sizes that determine kernels decide: code that differs counts as faster.
    """
    if rates := table().foreign_code.get(name_of(own_target), {}).get(name_of(other_target)):
        return 1 / min(rates.values())
    return 1.0 if microarchitecture.of_target(own_target) == microarchitecture.of_target(other_target) else float("inf")


def variants(device: Device) -> list[Device]:
    """Return a device's clusters with enough speedup for code of their own."""
    if not any(cluster.target for cluster in device.clusters) or devices.compiler(device) is not None:
        return []
    main = host_target.target(device.target)
    kinds = {name_of(main): device}
    for cluster in device.clusters:
        variant = core_kinds.at_cluster(device, cluster)
        target = host_target.target(variant.target)
        if name_of(target) not in kinds and gain(main, target) > WORTHWHILE:
            kinds[name_of(target)] = variant
    return list(kinds.values())[1:]


def name_of(target: Any) -> str:
    """Return LLVM's name of a target's processor."""
    return str(target.attrs.get("mcpu", "") or "")
