"""Board processors: clusters of cores, and devices without cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from pipeline.core.board.board import Board, Device


@dataclass(frozen=True)
class BoardProcessor:
    """A processor, as the board describes it."""

    device: Device
    cores: tuple[int, ...]
    """Cores of the cluster; empty for a device without cores, and for a server, which shares out its own."""
    speed: float = 1.0

    @property
    def watts(self) -> float:
        """Power of a core or device at work, above rest."""
        device_watts = self.device.watts_busy - self.device.watts_idle
        speeds = [self.device.speed(core) for core in self.device.cores]
        # Of a server, one slot.
        return device_watts * self.speed / sum(speeds) if self.cores else device_watts / self.device.slot_count


_MOST_ALIKE = 4
"""Bound on equal devices with replicas on any of them; above it, on the first ones, or all."""


def equal_devices(board: Board, processors: Sequence[BoardProcessor], index: int) -> Iterator[tuple[int, ...]]:
    """Yield the sets of several equal devices whose first is a processor."""
    if processors[index].cores:
        return
    first = processors[index].device
    alike = [number for number, other in enumerate(processors) if _is_exchangeable(board, first, other.device)]
    counts = range(2, len(alike) + 1)
    if len(alike) <= _MOST_ALIKE:
        sets = [indices for count in counts for indices in combinations(alike, count)]
    else:
        sets = [tuple(alike[:count]) for count in counts]
    yield from (indices for indices in sets if indices[0] == index)


def _is_exchangeable(board: Board, first: Device, second: Device) -> bool:
    """Check two devices for equal make and equal ways to their memories."""
    if first.likeness != second.likeness or first.at_once > 1:
        return False
    return first.memory == second.memory or _ways(board, first) == _ways(board, second)


def _ways(board: Board, device: Device) -> object:
    """Return the links of a memory by their other ends, or the device if it is not alone there."""
    if sum(other.memory == device.memory for other in board.devices) > 1:
        return device
    ends = [tuple("" if end == device.memory else end for end in link.ends) for link in board.links]
    rates = [repr(replace(link, ends=("", ""))) for link in board.links]
    return sorted((pair, rate) for pair, rate in zip(ends, rates, strict=True) if "" in pair)


def board_processors(board: Board) -> list[BoardProcessor]:
    """Return the clusters of cores and the coreless devices."""
    processors = []
    for device in board.devices:
        clusters = [(cluster.cores, cluster.speed) for cluster in device.clusters] or [(device.cores, 1.0)]
        if device.capabilities.has_slots:
            clusters = [((), 1.0)]
        processors += [BoardProcessor(device, cores, speed) for cores, speed in clusters]
    return processors
