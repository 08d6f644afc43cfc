"""Obstacle: why a board cannot run the requested stages, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from pipeline.core.board.board import Board, Device
from pipeline.core.board.transfer_costs import enter_s, leave_s
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator
from pipeline.split.offload import Refusals
from pipeline.split.planning.problem.pins import Pins
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.problem.request import PlanRequest
from pipeline.split.planning.solver.memory_shortage import MemoryShortage


@dataclass(frozen=True)
class Obstacle:
    """A problem without a solution."""

    graph: Graph
    board: Board
    pins: Pins
    seconds: Callable[[Device], Sequence[float]]
    """Returns the seconds of each fused group on a device, infinite where it cannot run."""
    refusals: Mapping[str, Refusals] = field(default_factory=dict)
    """Groups that a device does not run by its own word, with reasons, by device."""
    variants: Callable[[Device], Sequence[str]] = lambda device: (device.name,)
    """Returns the names of a device with those of its runtimes that stages may have."""

    def describe(self, request: PlanRequest, problem: Problem) -> str:
        """Return why no division exists; `problem` had no solution.

        Raises `BoardError` if two stages that follow each other have no link.
        """
        order = request.order
        # With cuts and devices fixed, the first stage that its device cannot run is the whole reason.
        if request.edges:
            for stage, device in zip(pairwise(request.edges), order, strict=True):
                if reason := self._misplacement(device, *stage):
                    return reason
        if order:
            self._check_links(order)
        shortage = MemoryShortage(problem, self.board)
        if reason := shortage.describe([device.name for device in order] if request.edges else ()):
            return f"{self.graph.name!r} cannot run: {reason}"
        return (
            self._describe_order([device.name for device in order])
            if order
            else self._describe_board(len(request.devices))
        )

    def _describe_board(self, stages: int) -> str:
        devices = [self.board.device(name) for device in self.board.devices for name in self.variants(device)]
        names = ", ".join(device.name for device in devices)
        if operator := self._impossible_operator(devices):
            return f"no device of board {self.board.name!r} ({names}) can run {self._describe(operator, devices)}"
        number = f" in {stages} stages" if stages else ""
        return (
            f"{self.graph.name!r} cannot run on board {self.board.name!r}{number}: its devices ({names}) have too few "
            f"cores, or no links for what the others cannot run{self._pin_reasons()}"
        )

    def _describe_order(self, devices: Sequence[str]) -> str:
        # Pins before operators: a pin makes operators impossible elsewhere, and is what the user can change.
        for pin in self.pins.values():
            if not set(pin.devices) & set(devices):
                return f"{pin.reason}, but the stages are on {', '.join(devices)}"
        used = [self.board.device(name) for name in dict.fromkeys(devices)]
        if operator := self._impossible_operator(used):
            names = ", ".join(device.name for device in used)
            return f"none of {names} can run {self._describe(operator, used)}"
        order = f"{', '.join(devices)} in this order{self._pin_reasons()}"
        return f"{self.graph.name!r} cannot run on {order}; leave the choice to the planner"

    def _describe(self, operator: Operator, devices: Sequence[Device]) -> str:
        """Return an operator's name with the reason that it runs on none of some devices, or its kind."""
        reasons = (self.refusals.get(device.name, {}).get(operator.group) for device in devices)
        return f"{operator.name!r} ({next(filter(None, reasons), operator.kind)})"

    def _misplacement(self, device: Device, begin: int, end: int) -> str:
        """Return why a device cannot run a stage's groups, or ""."""
        for group, pin in self.pins.items():
            if begin <= group < end and device.name not in pin.devices:
                return f"{pin.reason}, but its stage is on {device.name!r}; change the pin, the cuts or the devices"
        times = self.seconds(device)
        for operator in self.graph.operators:
            if begin <= operator.group < end and np.isinf(times[operator.group]):
                reason = self.refusals.get(device.name, {}).get(operator.group, operator.kind)
                return (
                    f"device {device.name!r} cannot run {operator.name!r} ({reason}); cut in front of it, or leave the "
                    "choice of devices to the planner"
                )
        return ""

    def _impossible_operator(self, devices: Sequence[Device]) -> Operator | None:
        times = [self.seconds(device) for device in devices]
        operators = self.graph.operators
        return next((operator for operator in operators if all(np.isinf(time[operator.group]) for time in times)), None)

    def _check_links(self, order: Sequence[Device]) -> None:
        """Raise the error of the first unconnected stages."""
        for source, target in pairwise((None, *order, None)):
            # The bytes do not matter, but without any there is nothing to send.
            if target is not None:
                enter_s(self.board, source, target, 1)
            if source is not None:
                leave_s(self.board, source, target, 1)

    def _pin_reasons(self) -> str:
        reasons = dict.fromkeys(pin.reason for pin in self.pins.values())
        return f", as {' and '.join(reasons)}" if reasons else ""
