"""Solution -> Plan: items as operators, choices as devices, cores, replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.core.board.board import Board, Device
from pipeline.core.board.transfer_costs import own_cores, replicas_on
from pipeline.core.plan.moves import find_moves
from pipeline.core.plan.plan import Plan, StagePlan
from pipeline.split.extract import GraphPart, parts
from pipeline.split.graph import Graph
from pipeline.split.planning.borrowing.step_builder import add_step_transfers, add_steps, share_borders
from pipeline.split.planning.problem.arrays import Array
from pipeline.split.planning.problem.board_processors import BoardProcessor, board_processors
from pipeline.split.planning.problem.group_work import group_traffic
from pipeline.split.planning.solver.solution import Solution, StageSolution


def build_plan(solution: Solution, graph: Graph, board: Board, *, measured: bool) -> Plan:
    """Return a solution of dividing `graph` as a plan for `board`."""
    ends, processors = graph.group_ends, board_processors(board)
    stages = solution.stages
    devices = [_device(stage, processors, board) for stage in stages]
    # The last stage ends with the graph, which is no cut.
    pieces = parts(graph, [ends[stage.end - 1] for stage in stages[:-1]])
    names = [_alike_names(stage, processors) for stage in stages]
    plans = tuple(map(_stage, range(len(stages)), stages, pieces, devices, names, _give_cores(board, stages)))
    plan = Plan(
        model=graph.name,
        digest=graph.digest,
        board=board,
        inputs=graph.frame_inputs,
        outputs=graph.frame_outputs,
        states=graph.states,
        stages=tuple(add_steps(plans, stages, graph, board)),
        measured=measured,
        # By name, since a plan's file outlives the positions of one reading of the model.
        unfused=tuple(graph.operators[position - 1].name for position in graph.unfused),
    )
    plan = add_transfers(add_step_transfers(plan), group_traffic(graph), [(stage.begin, stage.end) for stage in stages])
    return replace(plan, stages=_share_cores(plan.stages, board, stages))


def add_transfers(plan: Plan, traffic: Array, spans: Sequence[tuple[int, int]]) -> Plan:
    """Return a computing-only plan with transfers' seconds and bytes.

    `traffic` has the bytes that each fused group moves, `spans` the first group of each stage and the one behind its
    last.
    """
    stages = []
    for stage, moves, (begin, end) in zip(plan.stages, find_moves(plan), spans, strict=True):
        transfer_s = moves.enter_s + moves.leave_s
        moving = replace(
            stage,
            seconds=stage.seconds + transfer_s,
            replica_seconds=tuple(seconds + transfer_s for seconds in stage.replica_seconds),
            transfer_s=transfer_s,
            memory_traffic=stage.memory_traffic + float(traffic[begin:end].sum()) + moves.copy_bytes,
        )
        if stage.steps:
            moving = share_borders(moving, moves)
        # A transfer takes as long on each, so that the mean is another one.
        stages.append(moving.at_mean())
    return replace(plan, stages=tuple(stages))


def _device(stage: StageSolution, processors: Sequence[BoardProcessor], board: Board) -> Device:
    """Return a stage's device with its runtime, or its workers'."""
    device = processors[stage.choice.processor].device
    return device if stage.choice.paths is not None else board.device(stage.choice.device or device.name)


def _alike_names(stage: StageSolution, processors: Sequence[BoardProcessor]) -> tuple[str, ...]:
    """Return the devices of replicas on several equal ones."""
    users = [processors[index] for index, count in enumerate(stage.choice.use) if count]
    return tuple(user.device.name for user in users) if len(users) > 1 and not users[0].cores else ()


def _stage(  # noqa: PLR0913, PLR0917 - one stage's share of each list
    index: int, stage: StageSolution, piece: GraphPart, device: Device, names: tuple[str, ...], cores: tuple[int, ...]
) -> StagePlan:
    return StagePlan(
        name=f"stage{index}",
        device=device.name,
        inputs=piece.inputs,
        outputs=piece.outputs,
        operators=(piece.operators[0].name, piece.operators[-1].name),
        cores=own_cores(device, cores),
        seconds=stage.compute,
        replica_seconds=tuple(stage.compute * factor for factor in stage.choice.factors),
        replicas=replicas_on(device, stage.choice.replicas),
        replica_devices=names * (replicas_on(device, stage.choice.replicas) // len(names)) if names else (),
    )


def _give_cores(board: Board, stages: Sequence[StageSolution]) -> list[tuple[int, ...]]:
    """Give each stage its cores, unlike ones replica by replica."""
    free = [list(processor.cores) for processor in board_processors(board)]
    cores = []
    for stage in stages:
        counts = [count if free[processor] else 0 for processor, count in enumerate(stage.choice.use)]
        cores.append(tuple(free[processor].pop(0) for processor, count in enumerate(counts) for _ in range(count)))
    return cores


def _share_cores(plans: Sequence[StagePlan], board: Board, stages: Sequence[StageSolution]) -> tuple[StagePlan, ...]:
    """Give leftover stages a shared core, the longest first. Each stage goes to the core that is done first."""
    homeless = [index for index, stage in enumerate(stages) if not any(stage.choice.use)]
    loads = {(plans[index].device, core): 0.0 for index in homeless for core in board.device(plans[index].device).cores}
    result = list(plans)
    # The longest first: short ones even out what long ones leave uneven.
    for index in sorted(homeless, key=lambda stage: -plans[stage].seconds):
        device = board.device(plans[index].device)
        candidates = [
            _place_on_core(plans[index], stages[index], device, core) for core in own_cores(device, device.cores)
        ]
        if candidates:
            result[index] = min(candidates, key=lambda plan: loads[plan.device, plan.cores[0]] + plan.seconds)
            loads[device.name, result[index].cores[0]] += result[index].seconds
    return tuple(result)


def _place_on_core(plan: StagePlan, stage: StageSolution, device: Device, core: int) -> StagePlan:
    # The solver counts with the fastest core.
    slower = max(map(device.speed, device.cores)) / device.speed(core)
    own_s = sum(step.seconds - step.transfer_s for step in plan.steps if step.device == plan.device)
    seconds = plan.seconds + (own_s if plan.steps else stage.compute) * (slower - 1)
    slowed = replace(plan, cores=(core,), replica_seconds=(seconds,)).at_replica(0)
    return replace(slowed, replica_seconds=())
