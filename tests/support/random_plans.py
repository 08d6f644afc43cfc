"""Random plans on boards where stages share cores, devices, links and memory, and replicas are not alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipeline.core.board.board import Board, Cluster, Device, Link
from pipeline.core.plan.moves import find_moves
from pipeline.core.plan.plan import Plan, StagePlan, StepPlan, TensorSpec
from pipeline.prediction.borrowing import step_moves

MS = 1e-3


def random_board(generator: np.random.Generator) -> Board:
    """Return a board with cores of two kinds, a GPU that overlaps, a VTA that takes turns, and an NPU far away."""
    rate = float(generator.choice([0.0, 2e9, 5e9]))
    devices = (
        Device("cpu", clusters=(Cluster("big", (0, 1, 2)), Cluster("little", (3, 4, 5), 0.4)), memory_bytes_per_s=rate),
        Device("gpu", "cuda", memory="gpu", memory_bytes_per_s=rate),
        Device("vta", "vta", memory="vta", at_once=4),
        Device("npu", "simulated", memory="npu", at_once=4),
    )
    links = (
        # The GPU's memory is the CPU's: its copies only write caches back.
        Link(("host", "gpu"), 1e9, 0.1 * MS, shared=bool(generator.integers(2))),
        Link(("host", "vta"), float(generator.uniform(2e8, 1e9)), 0.2 * MS),
        Link(("host", "npu"), float(generator.uniform(2e8, 1e9)), 0.1 * MS),
    )
    return Board("random", devices, links)


def random_plan(seed: int) -> Plan:
    """Return a chain of stages, some of whose tensors skip stages."""
    generator = np.random.default_rng(seed)
    board = random_board(generator)
    cores, skipping, stages = [0, 1, 2, 3, 4, 5], list[TensorSpec](), list[StagePlan]()
    before = _tensor(generator, "x")
    for number in range(int(generator.integers(1, 6))):
        device = str(generator.choice(["cpu", "cpu", "cpu", "gpu", "vta", "npu"]))
        outputs = [_tensor(generator, f"t{number}.{index}") for index in range(int(generator.integers(1, 4)))]
        inputs = (before, *(spec for spec in skipping if generator.integers(2)))
        stage = StagePlan(f"s{number}", device, inputs, tuple(outputs), queue_depth=int(generator.integers(2, 4)))
        stages.append(_on_device(generator, board, stage, cores))
        before, skipping = outputs[0], [*skipping, *outputs[1:]]
    plan = Plan("m", "", board, stages[0].inputs, (before,), tuple(stages))
    return replace(plan, stages=tuple(_with_times(generator, plan)))


def _tensor(generator: np.random.Generator, name: str) -> TensorSpec:
    return TensorSpec(name, (int(generator.integers(1_000, 200_000)),))


def _on_device(generator: np.random.Generator, board: Board, stage: StagePlan, cores: list[int]) -> StagePlan:
    if stage.device != "cpu":
        return replace(stage, replicas=int(generator.integers(2, 4)) if board.device(stage.device).overlaps else 1)
    if len(cores) == 1:
        # More stages than cores: they take turns on one; the planner gives replicas cores of their own.
        return replace(stage, cores=(cores[0],))
    count = int(generator.integers(1, len(cores)))
    replica_cores = tuple(cores.pop(0) for _ in range(count))
    return replace(stage, cores=replica_cores, replicas=count)


def _with_times(generator: np.random.Generator, plan: Plan) -> list[StagePlan]:
    """Return the stages with times that their moves are a part of."""
    stages = []
    for stage, moves in zip(plan.stages, find_moves(plan), strict=True):
        device, transfer_s = plan.board.device(stage.device), moves.enter_s + moves.leave_s
        compute_s = float(generator.uniform(1, 10)) * MS * stage.replicas**0.5
        speeds = [device.speed(stage.cores_of(replica)[0]) if stage.cores else 1.0 for replica in range(stage.replicas)]
        times = tuple(compute_s / speed + transfer_s for speed in speeds)
        timed = replace(stage, transfer_s=transfer_s, replica_seconds=times if len(set(speeds)) > 1 else ())
        seconds = timed.mean_seconds if timed.replica_seconds else times[0]
        # At most three quarters of what the memory moves in that time.
        traffic = float(generator.uniform(0, 0.75)) * compute_s * device.memory_bytes_per_s + moves.copy_bytes
        stages.append(replace(timed, seconds=seconds, memory_traffic=traffic))
    return stages


def random_step_plan(seed: int) -> Plan:
    """Return one or two stages whose workers borrow an accelerator behind a link, one of which may also be on it."""
    generator = np.random.default_rng(seed)
    link = Link(("host", "npu"), float(generator.uniform(2e8, 2e9)), 0.02 * MS)
    board = Board("steps", (Device("cpu", "simulated"), Device("npu", "simulated", memory="npu")), (link,))
    specs, stages = [_tensor(generator, "x")], list[StagePlan]()
    for number in range(int(generator.integers(1, 3))):
        steps = list[StepPlan]()
        for index in range(int(generator.integers(2, 14))):
            specs.append(_tensor(generator, f"t{number}.{index}"))
            step = StepPlan(("cpu", "npu")[index % 2], (), (specs[-2],), (specs[-1],))
            steps.append(replace(step, seconds=float(generator.exponential(2)) * MS))
        stage = StagePlan(
            f"s{number}", "cpu", steps[0].inputs, steps[-1].outputs, steps=tuple(steps),
            replicas=int(generator.integers(1, 5)),
        )  # fmt: skip
        stages.append(_with_step_transfers(board, stage))
    return Plan("m", "", board, stages[0].inputs, stages[-1].outputs, tuple(stages))


def _with_step_transfers(board: Board, stage: StagePlan) -> StagePlan:
    transfers = [moves.enter_s + moves.leave_s for moves in step_moves(board, stage)]
    steps = tuple(
        replace(step, seconds=step.seconds + transfer_s, transfer_s=transfer_s)
        for step, transfer_s in zip(stage.steps, transfers, strict=True)
    )
    return replace(stage, steps=steps, seconds=sum(step.seconds for step in steps), transfer_s=sum(transfers))
