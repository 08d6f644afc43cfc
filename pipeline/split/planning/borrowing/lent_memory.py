"""Lent memory: weights of each worker on borrowed devices."""

from __future__ import annotations

from pipeline.core.board.board import Board
from pipeline.split.graph import Graph
from pipeline.split.planning.problem.board_processors import board_processors
from pipeline.split.planning.problem.footprint import Footprint
from pipeline.split.planning.problem.problem_builder import memory_sizes
from pipeline.split.planning.solver.solution import Solution, StageSolution


class LentMemory:
    """Limited memories of a board, and needs of divisions."""

    def __init__(self, graph: Graph, board: Board) -> None:
        self._footprint, self._sizes = Footprint.of(graph), memory_sizes(board)
        self._memories = [processor.device.memory for processor in board_processors(board)]

    def describe_shortage(self, solution: Solution) -> str:
        """Return the memory too small for a division's loans, or ""."""
        for memory, size in self._sizes.items():
            lent_bytes = sum(self._lent_bytes(stage, memory) for stage in solution.stages)
            home_bytes = (stage.nbytes for stage in solution.stages if self._memories[stage.choice.processor] == memory)
            if lent_bytes and sum(home_bytes) + lent_bytes > size:
                return (
                    f"stages that borrow need {lent_bytes / 1e6:.3g} MB of the memory {memory!r} for the weights of "
                    f"their steps there, once for each worker, and it has {size / 1e6:.3g} MB; ask for fewer "
                    "replicas, or for no stages that borrow (--no-borrowing)"
                )
        return ""

    def _lent_bytes(self, stage: StageSolution, memory: str) -> float:
        """Return a stage's bytes in a foreign memory."""
        choice = stage.choice
        if choice.paths is None or self._memories[choice.processor] == memory:
            return 0.0
        steps = choice.paths.steps(stage.begin, stage.end)
        spans = [slice(step.begin, step.end) for step in steps if self._memories[step.processor] == memory]
        if not spans:
            return 0.0
        # A worker runs its steps one after the other: of what is alive meanwhile, the most counts.
        parameters = sum(float(self._footprint.parameters[span].sum()) for span in spans)
        workspace = max(float(self._footprint.workspace[span].max()) for span in spans)
        return choice.replicas * (parameters + workspace)
