"""Resources: shared parts of a board, and each choice's seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipeline.core.board.board import Board, Device
from pipeline.prediction.shared_loads import memory_pools
from pipeline.split.graph import Graph
from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.border_kinds import BoardBorders
from pipeline.split.planning.problem.choice import Choice
from pipeline.split.planning.problem.group_work import group_traffic
from pipeline.split.planning.problem.problem import Problem, Resource


def add_turns(problem: Problem, devices: Sequence[Device], borders: BoardBorders) -> Problem:
    """Return the problem with a resource per one-frame device.

    `devices` has that of each processor.
    """
    for index, device in enumerate(devices):
        # Cores are given away one by one.
        several = device.overlaps or (device.places > 1 and not device.cores)
        if several and device.capabilities.computes:
            problem = _add_turn(problem, index, device, borders)
    return problem


def add_links(problem: Problem, devices: Sequence[Device], borders: BoardBorders) -> Problem:
    """Return the problem with a resource per link.

    It carries one tensor at a time. `devices` has that of each processor.
    """
    # Equal devices with memories of their own have links of their own: only one worker uses each.
    spread = [choice.use for choice in problem.choices if choice.memories > 1]
    lone = {device.memory for use in spread for device, count in zip(devices, use, strict=True) if count}
    for ends in dict.fromkeys((*borders.enter_links, *borders.leave_links)):
        if lone.intersection(ends):
            continue
        index = len(problem.resources)
        problem = replace(
            problem,
            resources=(*problem.resources, Resource(f"link {' - '.join(ends)}", "link")),
            enter_loads={**problem.enter_loads, **_load_entry(index, borders.enter_links.get(ends))},
            leave_loads={**problem.leave_loads, **_load_entry(index, borders.leave_links.get(ends))},
        )
    return problem


def add_memories(
    problem: Problem, graph: Graph, board: Board, devices: Sequence[Device], borders: BoardBorders
) -> Problem:
    """Return the problem with a resource per memory of known bandwidth."""
    traffic = group_traffic(graph)
    for pool in memory_pools(board):
        if not pool.bytes_per_s:
            continue
        index = len(problem.resources)
        residents = np.array([device.memory in pool.memories for device in devices])
        per_byte = np.where(residents, 1 / pool.bytes_per_s, 0.0)
        problem = replace(
            problem,
            choices=tuple(
                replace(choice, loads={**choice.loads, index: traffic / pool.bytes_per_s / choice.memories})
                if residents[choice.processor]
                else choice
                for choice in problem.choices
            ),
            resources=(*problem.resources, Resource(f"memory {pool.name}", "memory")),
            enter_loads={**problem.enter_loads, index: borders.enter_bytes * per_byte[None, :, None]},
            leave_loads={**problem.leave_loads, index: borders.leave_bytes * per_byte[:, None, None]},
        )
    return problem


def _load_entry(index: int, load: Array | None) -> dict[int, Array]:
    return {} if load is None else {index: load}


def _add_turn(problem: Problem, processor: int, device: Device, borders: BoardBorders) -> Problem:
    resource, slots = len(problem.resources), device.slot_count
    choices = tuple(
        _add_load(choice, resource, slots) if choice.processor == processor else choice for choice in problem.choices
    )
    # What is copied moves while the device computes for others; what it fetches itself does not.
    enter, leave = np.zeros_like(problem.enter), np.zeros_like(problem.leave)
    enter[:, processor] = np.where(borders.enter_bytes[:, processor] > 0, 0.0, problem.enter[:, processor])
    leave[processor] = np.where(borders.leave_bytes[processor] > 0, 0.0, problem.leave[processor])
    return replace(
        problem,
        choices=choices,
        resources=(*problem.resources, Resource(device.name)),
        enter_loads={**problem.enter_loads, **_if_any(resource, enter / slots)},
        leave_loads={**problem.leave_loads, **_if_any(resource, leave / slots)},
    )


def _if_any(resource: int, load: Array) -> dict[int, Array]:
    # Where there is no way, there is no stage.
    finite = np.where(np.isfinite(load), load, 0.0)
    return {resource: finite} if finite.any() else {}


def _add_load(choice: Choice, resource: int, slots: int) -> Choice:
    load = choice.seconds if choice.spans is None else choice.spans
    # Of equal devices, each takes its share of the frames.
    return replace(choice, loads={**choice.loads, resource: load / slots / max(1, sum(map(bool, choice.use)))})
