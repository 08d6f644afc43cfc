"""Requirement: a node's resources per replica, and the possible count."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.core.plan.plan import Plan
from pipeline.errors import ArgumentError, BoardError

SMALLEST = 0.01
"""Share of a core for a pipeline that computes on none, and of a board's resource, which only says where it may run."""

HOST = "host"
"""Name of a board that is just the machine on which it was planned."""

MOST_REPLICAS = 256
"""More have to be asked for: each is a process."""


@dataclass(frozen=True)
class Requirement:
    """Resources of one replica."""

    cpus: float
    gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)
    """Ray's custom resources, such as ``{"board:ultra96": 0.01, "device:vta": 1}``."""

    @property
    def actor_options(self) -> dict[str, Any]:
        """As Ray takes them."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "resources": dict(self.resources)}

    def __str__(self) -> str:
        amounts = {"CPU": self.cpus, "GPU": self.gpus, **self.resources}
        return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items() if amount)

    def count_places(self, resources: Mapping[str, float]) -> int:
        """Count the replicas in a node's resources."""
        # Where a pipeline computes on no core, still one for each: somebody has to carry the frames.
        needs = {"CPU": max(1.0, self.cpus), "GPU": self.gpus, **self.resources}
        return min(int(resources.get(name, 0.0) / amount + 1e-9) for name, amount in needs.items() if amount)


def derive_requirement(
    plan: Plan, cpus: float | None = None, resources: Mapping[str, float] | None = None
) -> Requirement:
    """Return a replica's resources for a plan.

    A core, or `cpus`, for each that its stages compute on; and, unless other resources are given, ``device:KIND`` for
    each accelerator, of Ray's own GPUs for CUDA, and ``board:NAME``, unless it was planned for the machine on which it
    was built.
    """
    units = plan.units
    devices = {unit.device: plan.board.device(unit.device) for unit in units}
    on_cores = [unit for unit in units if devices[unit.device].capabilities.occupies_cores]
    cores = {core for unit in on_cores for core in unit.cores}
    derived_cpus = float(len(cores) or len(on_cores)) or SMALLEST
    beside = {
        device.name: device.capabilities
        for device in devices.values()
        if device.capabilities.computes and not device.capabilities.occupies_cores and not device.address
    }
    names = [kind.cluster_resource or f"device:{kind.name}" for kind in beside.values()]
    amounts = {name: float(names.count(name)) for name in names}
    gpus = amounts.pop("GPU", 0.0)
    if plan.board.name != HOST and any(device.capabilities.computes for device in devices.values()):
        amounts[f"board:{plan.board.name}"] = SMALLEST
    return Requirement(
        derived_cpus if cpus is None else _amount("cpus", cpus),
        gpus,
        amounts if resources is None else {name: _amount(name, amount) for name, amount in resources.items()},
    )


def _amount(name: str, amount: Any) -> float:
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < math.inf:
        raise ArgumentError(f"{name} is {amount!r}; it must be a number above 0")
    return float(amount)


def count_replicas(nodes: Sequence[Mapping[str, Any]], requirement: Requirement) -> int:
    """Count the replicas in all living nodes."""
    counts = [requirement.count_places(node["Resources"]) for node in nodes if node["Alive"]]
    return min(MOST_REPLICAS, sum(counts))


def check_nodes(nodes: Sequence[Mapping[str, Any]], requirement: Requirement) -> None:
    """Check for a node with room for a replica.

    Raises `BoardError` if none has all that it takes; the message says what is missing.
    """
    living = [node["Resources"] for node in nodes if node["Alive"]]
    needs = {"CPU": requirement.cpus, "GPU": requirement.gpus, **requirement.resources}
    if any(all(node.get(name, 0.0) >= amount for name, amount in needs.items()) for node in living):
        return
    missing = [name for name, amount in needs.items() if not any(node.get(name, 0.0) >= amount for node in living)]
    named = [name for name in missing if name not in {"CPU", "GPU"}]
    remedy = "give a node more, or ask for less: cpus=..., resources=..."
    if named:
        amounts = ", ".join(f'"{name}": 1' for name in named)
        remedy = f"start Ray there with --resources='{{{amounts}}}', or say what is needed: resources=..."
    reason = f"no node has {' or '.join(missing)}" if missing else "no node has all of it"
    raise BoardError(f"a replica needs {requirement}, and {reason} ({len(living)} nodes); {remedy}")
