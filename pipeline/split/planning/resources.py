"""Resources: what stages on a board share, and for how long each way to run a stage uses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.core.board import Device
from pipeline.split.planning.problem import Choice, Problem, Resource


def add_turns(problem: Problem, devices: Sequence[Device]) -> Problem:
    """Return the problem with a resource for each device on which several stages take turns.

    `devices` has that of each processor.
    """
    for index, device in enumerate(devices):
        # Cores are given away one by one; a device without any computes one frame at a time.
        if device.places > 1 and not device.cores:
            problem = _add_turn(problem, index, device.name)
    return problem


def _add_turn(problem: Problem, processor: int, name: str) -> Problem:
    resource = len(problem.resources)
    choices = tuple(
        _add_load(choice, resource) if choice.processor == processor else choice for choice in problem.choices
    )
    return replace(problem, choices=choices, resources=(*problem.resources, Resource(name)))


def _add_load(choice: Choice, resource: int) -> Choice:
    # What comes in and goes out moves while the device computes for another stage.
    load = choice.seconds if choice.spans is None else choice.spans
    return replace(choice, loads={**choice.loads, resource: load})
