"""Memory pools: memories on the same chips, and their shared bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.board.board import Board


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
