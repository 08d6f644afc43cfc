"""Solution -> Plan: its items as operators, its choices as devices, cores and replicas."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.board import Board, Device
from pipeline.plans import Plan, StagePlan
from pipeline.split.extract import Part, parts
from pipeline.split.graph import Graph
from pipeline.split.planning.problem import Choice
from pipeline.split.planning.solution import Solution, Stage
from pipeline.split.resources import places
from pipeline.transfers import own_cores, replicas_on


def plan_of(solution: Solution, graph: Graph, board: Board, *, measured: bool) -> Plan:
    """Return a solution of the problem of dividing `graph` among the devices of `board` as a plan."""
    ends, groups = graph.group_ends, places(board)
    pieces = parts(graph, [ends[stage.end - 1] for stage in solution.stages[:-1]])
    cores = _cores(board, [stage.choice for stage in solution.stages])
    devices = [groups[stage.choice.place].device for stage in solution.stages]
    return Plan(
        model=graph.name,
        digest=graph.digest,
        board=board,
        inputs=graph.inputs,
        outputs=graph.outputs,
        stages=tuple(map(_stage, range(len(pieces)), solution.stages, pieces, devices, cores)),
        measured=measured,
    )


def _stage(number: int, stage: Stage, piece: Part, device: Device, cores: tuple[int, ...]) -> StagePlan:
    return StagePlan(
        name=f"stage{number}",
        device=device.name,
        inputs=piece.inputs,
        outputs=piece.outputs,
        operators=(piece.operators[0].name, piece.operators[-1].name),
        cores=own_cores(device, cores),
        seconds=stage.seconds,
        moving=stage.enter + stage.leave,
        replicas=replicas_on(device, stage.choice.replicas),
    )


def _cores(board: Board, choices: Sequence[Choice]) -> list[tuple[int, ...]]:
    """Give each stage its cores, in the order of the stages, unlike ones for its replicas one after the other."""
    left = [list(group.cores) for group in places(board)]
    found = []
    for choice in choices:
        counts = [count if left[place] else 0 for place, count in enumerate(choice.use)]
        found.append(tuple(left[place].pop(0) for place, count in enumerate(counts) for _ in range(count)))
    return found
