"""Steps of a plan's heterogeneous stages, from paths to operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pipeline.core.board.board import Board
from pipeline.core.plan.moves import StageMoves
from pipeline.core.plan.plan import Plan
from pipeline.core.plan.stage_plan import StagePlan, StepPlan
from pipeline.prediction.borrowing import step_moves
from pipeline.split.extract import GraphPart, parts
from pipeline.split.graph import Graph
from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.board_processors import board_processors
from pipeline.split.planning.problem.choice import Paths, PathStep
from pipeline.split.planning.problem.group_work import group_traffic
from pipeline.split.planning.solver.solution import StageSolution


def add_steps(
    plans: Sequence[StagePlan], stages: Sequence[StageSolution], graph: Graph, board: Board
) -> Iterator[StagePlan]:
    """Yield the stages, heterogeneous ones with steps. Their transfers are still to be added."""
    paths = [() if stage.choice.paths is None else stage.choice.paths.steps(stage.begin, stage.end) for stage in stages]
    names, traffic = [processor.device.name for processor in board_processors(board)], group_traffic(graph)
    pieces = iter(_pieces(graph, stages, paths))
    for plan, stage, path in zip(plans, stages, paths, strict=True):
        if stage.choice.paths is None:
            next(pieces)
            yield plan
            continue
        steps = [
            _step(step, names[step.processor], next(pieces), stage.choice.paths, traffic[step.begin : step.end])
            for step in path
        ]
        yield with_steps(plan, steps, stage.choice.factors)


def with_steps(stage: StagePlan, steps: Sequence[StepPlan], factors: Sequence[float]) -> StagePlan:
    """Return the stage with computing steps.

    On the stage's own device, each replica multiplies the steps' times by its factor.
    """
    own_s = sum(step.seconds for step in steps if step.device == stage.device)
    seconds = sum(step.seconds for step in steps)
    times = tuple(seconds + own_s * (factor - 1) for factor in factors)
    return replace(stage, steps=tuple(steps), seconds=seconds, replica_seconds=times)


def _pieces(graph: Graph, stages: Sequence[StageSolution], paths: Sequence[Sequence[PathStep]]) -> list[GraphPart]:
    """Return the parts of all steps and plain stages."""
    ends = [
        end for stage, path in zip(stages, paths, strict=True) for end in [step.end for step in path] or [stage.end]
    ]
    return parts(graph, [graph.group_ends[end - 1] for end in ends[:-1]])


def _step(step: PathStep, device: str, piece: GraphPart, paths: Paths, traffic: Array) -> StepPlan:
    operators = (piece.operators[0].name, piece.operators[-1].name)
    return StepPlan(
        device, operators, piece.inputs, piece.outputs, paths.step_seconds(step), memory_traffic=float(traffic.sum())
    )


def add_step_transfers(plan: Plan) -> Plan:
    """Return the plan with its steps' transfers."""
    return replace(plan, stages=tuple(_with_transfers(plan, stage) if stage.steps else stage for stage in plan.stages))


def _with_transfers(plan: Plan, stage: StagePlan) -> StagePlan:
    moves = step_moves(plan.board, stage)
    steps = tuple(
        _add_moves(step, _seconds(part_moves), part_moves.copy_bytes)
        for step, part_moves in zip(stage.steps, moves, strict=True)
    )
    transfer_s = sum(map(_seconds, moves))
    return replace(
        stage,
        steps=steps,
        seconds=sum(step.seconds for step in steps),
        replica_seconds=tuple(seconds + transfer_s for seconds in stage.replica_seconds),
        memory_traffic=float(sum(part_moves.copy_bytes for part_moves in moves)),
    )


def _seconds(moves: StageMoves) -> float:
    return moves.enter_s + moves.leave_s


def _add_moves(step: StepPlan, transfer_s: float, nbytes: int = 0) -> StepPlan:
    return replace(
        step,
        seconds=step.seconds + transfer_s,
        transfer_s=step.transfer_s + transfer_s,
        memory_traffic=step.memory_traffic + nbytes,
    )


def share_borders(stage: StagePlan, moves: StageMoves) -> StagePlan:
    """Return a stage whose outer steps move its own tensors."""
    home_steps = [index for index, step in enumerate(stage.steps) if step.device == stage.device]
    first, last = (home_steps[0], home_steps[-1]) if home_steps else (0, len(stage.steps) - 1)
    steps = list(stage.steps)
    steps[first] = _add_moves(steps[first], moves.enter_s)
    steps[last] = _add_moves(steps[last], moves.leave_s)
    return replace(stage, steps=tuple(steps), transfer_s=sum(step.transfer_s for step in steps))
