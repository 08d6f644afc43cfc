"""Worker costs: items on a worker's cores and loans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.split.planning.borrowing.heterogeneous import StepCosts
from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.problem import Problem

STEP_S = 30e-6
"""Seconds before a step on a borrowed device computes: a lock that changes hands, and a call."""


def step_costs(problem: Problem, worker: Choice, devices: Sequence[int]) -> tuple[StepCosts, list[int]]:
    """Return a worker's step costs, and each resource's number or -1.

    The last resource is the worker's own device, which it shares with nobody: its price is how much slower it is.
    """
    processors = (worker.processor, *devices)
    seconds = np.vstack([worker.seconds, *(_device_seconds(problem, device) for device in devices)])
    start_s = np.array([0.0, *(STEP_S for _ in devices)])
    ends = np.ix_(processors, processors)
    moves = _changes(problem.leave[ends] + problem.enter[ends])
    # A memory's bytes are shared, too, but nobody stands in line for them.
    links = [index for index, resource in enumerate(problem.resources) if resource.kind == "link"]
    nothing = np.zeros_like(moves)
    link_uses = [
        _changes(
            sum((load[index][ends] for load in (problem.enter_loads, problem.leave_loads) if index in load), nothing)
        )
        for index in links
    ]
    names = [resource.name for resource in problem.resources]
    indices = [_index(names, problem.processors[device].name) for device in devices]
    device_uses = np.hstack([np.zeros((len(devices), 1)), np.eye(len(devices))])
    uses = np.vstack([device_uses, np.zeros((len(links), len(processors))), np.eye(1, len(processors))])
    move_uses = np.stack([*(nothing for _ in devices), *link_uses, nothing])
    return StepCosts(seconds, start_s, moves, uses, move_uses), [*indices, *links, -1]


def _index(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else -1


def _device_seconds(problem: Problem, device: int) -> Array:
    """Return items' times on a device, infinite if not additive."""
    candidates = [choice for choice in problem.choices if choice.processor == device and choice.spans is None]
    return candidates[0].seconds if candidates else np.full(problem.items, np.inf)


def _changes(values: Array) -> Array:
    """Return the costs of device changes; staying is free."""
    result: Array = np.array(values, np.float64)
    result[np.arange(len(result)), np.arange(len(result))] = 0.0
    return result
