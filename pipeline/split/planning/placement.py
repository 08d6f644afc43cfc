"""Placement: causes of each stage's device, kept in the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pipeline.core.plan.moves import find_moves
from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.split.planning.problem.footprint import Footprint
from pipeline.split.planning.solver.solution import Solution, StageSolution
from pipeline.split.planning.timed_graph import TimedGraph

_BEST = {
    "throughput": "best for the rate of all stages",
    "latency": "best for the latency of all stages",
    "energy": "least energy",
}


@dataclass(frozen=True)
class Placement:
    """A solution turned plan, with its request.

    `has_devices` and `has_cuts` are True if the request names the devices of all stages, or their cuts.
    """

    timed: TimedGraph
    plan: Plan
    solution: Solution
    goal: str
    has_devices: bool = False
    has_cuts: bool = False

    def with_causes(self) -> Plan:
        """Return the plan, each stage with its cause."""
        pairs = zip(self.plan.stages, self.solution.stages, strict=True)
        return replace(self.plan, stages=tuple(replace(stage, cause=self._cause(stage, part)) for stage, part in pairs))

    def _cause(self, stage: StagePlan, part: StageSolution) -> str:
        """Return the first valid cause, from user to whole plan."""
        alternatives = dict(self._others(stage, part))
        user_cause = "asked for" if self.has_devices else self._pin(part) or _borrowing(stage)
        cause = user_cause or self._lone(stage, part, alternatives)
        if not cause and self.has_cuts:
            cause = "the first device that runs it, since its cuts are given"
        faster = {name: seconds for name, seconds in alternatives.items() if seconds < part.compute}
        return cause or (self._obstacle(stage, part, faster) if faster else self._fastest(stage, part, alternatives))

    def _pin(self, part: StageSolution) -> str:
        pins = [self.timed.pins[group] for group in range(part.begin, part.end) if group in self.timed.pins]
        return "; ".join(dict.fromkeys(pin.reason for pin in pins))

    def _others(self, stage: StagePlan, part: StageSolution) -> Iterator[tuple[str, float]]:
        """Yield other devices and runtimes with one core's seconds."""
        board = self.timed.board
        for device in board.devices:
            for name in self.timed.variants(device):
                seconds = float(np.sum(self.timed.seconds(board.device(name))[part.begin : part.end]))
                if name != stage.device and np.isfinite(seconds):
                    yield name, seconds

    def _lone(self, stage: StagePlan, part: StageSolution, alternatives: Mapping[str, float]) -> str:
        """Return why no other device runs a stage, or ""."""
        if alternatives:
            return ""
        devices = [device for device in self.timed.board.devices if not device.is_called(stage.device)]
        if not devices:
            return "the only device"
        times = np.array([self.timed.seconds(device)[part.begin : part.end] for device in devices])
        nowhere = np.flatnonzero(~np.isfinite(times).any(axis=0))
        if not len(nowhere):
            return "no other device runs all of it"
        group = part.begin + int(nowhere[0])
        operator = next(candidate for candidate in self.timed.graph.operators if candidate.group == group)
        return f"the only device that runs {operator.name!r} ({operator.kind})"

    def _fastest(self, stage: StagePlan, part: StageSolution, alternatives: Mapping[str, float]) -> str:
        name, seconds = min(alternatives.items(), key=lambda pair: pair[1])
        return f"{self.timed.basis(stage.device)} fastest: {_ms(part.compute)}, {name} {_ms(seconds)}"

    def _obstacle(self, stage: StagePlan, part: StageSolution, faster: Mapping[str, float]) -> str:
        """Return why a stage is not on its fastest device."""
        name, seconds = min(faster.items(), key=lambda pair: pair[1])
        device = self.timed.board.device(name)
        nbytes = float(Footprint.of(self.timed.graph).stage_bytes(part.begin, part.end, 1))
        if device.memory_bytes and nbytes > device.memory_bytes:
            return f"no memory on {name}, which computes it in {_ms(seconds)}"
        own_s, other_s = part.compute + stage.transfer_s, seconds + self._transfer_s(stage, name)
        if own_s <= other_s:
            return f"fastest with its transfers: {_ms(own_s)}, {name} {_ms(other_s)}"
        users = [user.name for user in self.plan.stages if user is not stage and device.is_called(user.device)]
        if users and len(users) >= device.places:
            return f"{name}, which computes it in {_ms(seconds)}, has {' and '.join(users)}"
        return f"{_BEST[self.goal]}; {name} computes it in {_ms(seconds)}"

    def _transfer_s(self, stage: StagePlan, name: str) -> float:
        """Return the seconds of a stage's tensors there and back."""
        moved = replace(stage, device=name, cores=(), replicas=1, replica_devices=(), replica_seconds=(), steps=())
        stages = tuple(moved if planned is stage else planned for planned in self.plan.stages)
        moves = find_moves(replace(self.plan, stages=stages))[self.plan.stages.index(stage)]
        return moves.enter_s + moves.leave_s


def _borrowing(stage: StagePlan) -> str:
    names = dict.fromkeys(step.device for step in stage.steps if step.device != stage.device)
    return f"its workers borrow {' and '.join(names)} for some of its operators" if names else ""


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
