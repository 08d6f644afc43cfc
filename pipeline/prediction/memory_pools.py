"""Memory pools: which memories are the same chips, and how many bytes per second all that use them share."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.board.board import Board


@dataclass(frozen=True)
class MemoryPool:
    """Memories that are the same chips.

    Attributes
    ----------
    name : str
        Of the first one.
    memories : frozenset of str
    bytes_per_s : float
        Of all readers together; 0 if unknown.
    """

    name: str
    memories: frozenset[str]
    bytes_per_s: float


def memory_pools(board: Board) -> list[MemoryPool]:
    """Return the pools of a board's memories: those are one that a link says to be the same chips."""
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
