"""Shared loads: the seconds per frame for which all stages together use what only one of them can at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from pipeline.core.board import Board
from pipeline.core.borrowing import borrowed_devices, compute_shares, step_moves
from pipeline.core.memory_pools import memory_pools
from pipeline.core.moves import StageMoves
from pipeline.core.stage_plan import StagePlan


def shared_loads(board: Board, stages: Sequence[StagePlan], moves: Sequence[StageMoves]) -> dict[str, float]:
    """Return the seconds per frame of whatever stages share."""
    loads: dict[str, float] = defaultdict(float)
    for name, seconds in (
        *_core_loads(board, stages),
        *_device_loads(board, stages, moves),
        *_memory_loads(board, stages),
    ):
        loads[name] += seconds
    within_stages = (moved for stage in stages if stage.steps for moved in step_moves(board, stage))
    for stage_moves in (*moves, *within_stages):
        for move in stage_moves.copies:
            if move.ends:
                loads[f"link {' - '.join(move.ends)}"] += move.seconds
    return dict(loads)


def shared_cores(board: Board, stages: Sequence[StagePlan]) -> set[int]:
    """Return the cores that several stages keep busy in turns."""
    # Where a run keeps no core busy, stages on the same core do not wait for each other.
    busy = (stage for stage in stages if board.device(stage.device).capabilities.occupies_cores)
    users = Counter(core for stage in busy for core in stage.cores)
    return {core for core, count in users.items() if count > 1}


def _core_loads(board: Board, stages: Sequence[StagePlan]) -> Iterator[tuple[str, float]]:
    cores = shared_cores(board, stages)
    for stage in stages:
        for replica, seconds in enumerate(stage.replica_times):
            for core in cores.intersection(stage.cores_of(replica)):
                yield f"core {core}", seconds * stage.share(replica)


def serial_devices(board: Board, stages: Sequence[StagePlan]) -> set[str]:
    """Return the devices that compute one frame at a time, of whichever stage or replica asks first."""
    # What overlaps is the moving of tensors.  A device that is its cores is shared by those.
    takers = (device for device in board.devices if device.overlaps or (device.places > 1 and not device.cores))
    borrowed = {name for stage in stages for name in borrowed_devices(board, stage)}
    return borrowed | {device.name for device in takers if device.capabilities.computes}


def _device_loads(
    board: Board, stages: Sequence[StagePlan], moves: Sequence[StageMoves]
) -> Iterator[tuple[str, float]]:
    devices = serial_devices(board, stages)
    for stage, stage_moves in zip(stages, moves, strict=True):
        for step, moved in zip(stage.steps, step_moves(board, stage) if stage.steps else (), strict=True):
            # Others have a borrowed device while tensors move.
            if step.device in devices:
                yield f"device {step.device}", max(0.0, step.seconds - moved.copy_s)
        for replica, seconds in enumerate(stage.replica_times):
            if not stage.steps and (name := stage.replica_names[replica]) in devices:
                yield f"device {name}", max(0.0, seconds - stage_moves.copy_s) * stage.share(replica)


def _memory_loads(board: Board, stages: Sequence[StagePlan]) -> Iterator[tuple[str, float]]:
    pools = {name: pool for pool in memory_pools(board) if pool.bytes_per_s for name in pool.memories}
    for stage in stages if pools else ():
        for unit, _, share in compute_shares(board, stage):
            pool = pools.get(board.device(unit.device).memory)
            if pool is not None and stage.memory_traffic:
                yield f"memory {pool.name}", stage.memory_traffic * share / pool.bytes_per_s
