"""MemoryShortage: memories too small for the requested stages, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.core.board.board import Board
from pipeline.split.planning.problem.problem import Problem
from pipeline.split.planning.problem.problem_builder import memory_sizes
from pipeline.split.planning.solver.chain_solver import ChainSolver


@dataclass(frozen=True)
class MemoryShortage:
    """A problem unsolved maybe for want of memory."""

    problem: Problem
    board: Board

    def describe(self, devices: Sequence[str]) -> str:
        """Return the memory too small, or "" for other reasons.

        `devices` has the name of each stage's device where the cuts are fixed; else it is empty.
        """
        return self._describe_stages(devices) if devices else self._describe_model()

    def _describe_stages(self, devices: Sequence[str]) -> str:
        for memory, size in memory_sizes(self.board).items():
            stages = [index for index, name in enumerate(devices) if self.board.device(name).memory == memory]
            needs = {index: self._stage_bytes(index) for index in stages}
            if sum(needs.values()) > size:
                parts = ", ".join(
                    f"stage{index} on {devices[index]} {_megabytes(nbytes)}" for index, nbytes in needs.items()
                )
                return (
                    f"the memory {memory!r} of board {self.board.name!r} has {_megabytes(size)}, and these stages need "
                    f"{_megabytes(sum(needs.values()))} of it: {parts}; {self._remedy(needs)}"
                )
        return ""

    def _stage_bytes(self, stage: int) -> float:
        """Return a one-item stage's fewest bytes."""
        problem = self.problem
        choices = [
            choice
            for choice in problem.choices
            if choice.processor in problem.stages[stage] and problem.allows(stage, choice)
        ]
        return min((float(problem.memory_bytes(choice)[stage + 1, stage]) for choice in choices), default=0.0)

    def _remedy(self, needs: Mapping[int, float]) -> str:
        queues = self.problem.queue_bytes
        waiting_bytes = 0.0 if queues is None else float(queues[list(needs)].sum())
        # Of a depth that was asked for; otherwise one frame waits, which is less than what a stage computes with.
        if waiting_bytes > sum(needs.values()) / 2:
            return f"{_megabytes(waiting_bytes)} are for frames that wait: ask for shorter queues"
        return "cut elsewhere, or give other devices"

    def _describe_model(self) -> str:
        problem = replace(self.problem, memories=())
        if not self.problem.memories or ChainSolver(problem).fastest() is None:
            return ""
        sizes = ", ".join(f"{name!r} {_megabytes(size)}" for name, size in memory_sizes(self.board).items())
        weights = 0.0 if problem.parameters is None else float(np.sum(problem.parameters))
        return (
            f"the memories of board {self.board.name!r} are too small for it: {sizes}; its weights alone take "
            f"{_megabytes(weights)}, and tensors and queues come on top"
        )


def _megabytes(nbytes: float) -> str:
    return f"{nbytes / 1e6:.3g} MB"
