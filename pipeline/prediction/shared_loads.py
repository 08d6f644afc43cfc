"""Shared loads: seconds per frame of resources and memories that stages share."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.core.board.board import Board
from pipeline.core.plan.stage_plan import StagePlan
from pipeline.prediction.borrowing import StagePart, borrowed_devices


@dataclass(frozen=True)
class MemoryPool:
    """Memories on the same chips."""

    name: str
    memories: frozenset[str]
    bytes_per_s: float
    """Bytes per second of all readers together; 0 if unknown."""


def memory_pools(board: Board) -> list[MemoryPool]:
    """Return a board's memory pools: links say which are the same chips."""
    pools: list[set[str]] = [{name} for name in dict.fromkeys(device.memory for device in board.devices)]
    for link in board.links:
        if link.shared or link.same_chips:
            joined = [pool for pool in pools if pool & set(link.ends)]
            pools = [set.union(*joined), *(pool for pool in pools if pool not in joined)] if joined else pools
    return [_pool(board, pool) for pool in pools]


def _pool(board: Board, memories: set[str]) -> MemoryPool:
    devices = [device for device in board.devices if device.memory in memories]
    # All describe the same chips; what one of them knows holds for all.
    rate = max(device.memory_bytes_per_s for device in devices)
    return MemoryPool(devices[0].memory, frozenset(memories), rate)


def shared_loads(
    board: Board, stages: Sequence[StagePlan], parts: Sequence[Sequence[StagePart]], devices: Mapping[str, int]
) -> dict[str, float]:
    """Return the seconds per frame of shared resources."""
    loads: dict[str, float] = defaultdict(float)
    for name, seconds in (
        *_core_loads(board, stages),
        *_device_loads(stages, parts, devices),
        *_memory_loads(board, stages, parts),
    ):
        loads[name] += seconds
    for stage, stage_parts in zip(stages, parts, strict=True):
        for part, share in _shared_parts(board, stage, stage_parts):
            for move in part.moves.copies:
                if move.ends:
                    loads[f"link {' - '.join(move.ends)}"] += move.seconds * share
    return dict(loads)


def _shared_parts(board: Board, stage: StagePlan, parts: Sequence[StagePart]) -> Iterator[tuple[StagePart, float]]:
    """Yield the parts on each device of a stage's replicas, with its share of the frames."""
    if not stage.replica_devices:
        yield from ((part, 1.0) for part in parts)
    for replica, name in enumerate(stage.replica_devices):
        yield from ((part.at(board, name), stage.share(replica)) for part in parts)


def shared_cores(board: Board, stages: Sequence[StagePlan]) -> set[int]:
    """Return the cores of several stages, used in turns."""
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


def serial_devices(board: Board, stages: Sequence[StagePlan]) -> dict[str, int]:
    """Return frames at once of devices that serve replicas in turns."""
    # What overlaps is the moving of tensors.  A device that is its cores is shared by those.
    takers = (device for device in board.devices if device.overlaps or (device.places > 1 and not device.cores))
    slots = {device.name: device.slot_count for device in takers if device.capabilities.computes}
    # What steps borrow is one worker's at a time.
    return slots | dict.fromkeys(lent_devices(board, stages), 1)


def lent_devices(board: Board, stages: Sequence[StagePlan]) -> set[str]:
    """Return the borrowed devices, for which all stages queue."""
    return {name for stage in stages for name in borrowed_devices(board, stage)}


def _device_loads(
    stages: Sequence[StagePlan], parts: Sequence[Sequence[StagePart]], devices: Mapping[str, int]
) -> Iterator[tuple[str, float]]:
    for stage, stage_parts in zip(stages, parts, strict=True):
        if stage.steps:
            # Others have a borrowed device while tensors move.
            yield from ((f"device {part.device}", part.compute_s) for part in stage_parts if part.device in devices)
            continue
        for replica, seconds in enumerate(stage.replica_times):
            if (name := stage.replica_names[replica]) in devices:
                compute_s = max(0.0, seconds - stage_parts[0].moves.copy_s)
                yield f"device {name}", compute_s * stage.share(replica) / devices[name]


def _memory_loads(
    board: Board, stages: Sequence[StagePlan], parts: Sequence[Sequence[StagePart]]
) -> Iterator[tuple[str, float]]:
    pools = {name: pool for pool in memory_pools(board) if pool.bytes_per_s for name in pool.memories}
    for stage, stage_parts in zip(stages, parts, strict=True) if pools else ():
        for part, share in _shared_parts(board, stage, stage_parts):
            nbytes = part.traffic + part.moves.copy_bytes
            if nbytes and (pool := pools.get(board.device(part.device).memory)):
                yield f"memory {pool.name}", nbytes * share / pool.bytes_per_s
