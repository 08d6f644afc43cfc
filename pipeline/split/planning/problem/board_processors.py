"""Board processors: clusters of cores, and devices without cores."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.core.board.board import Board, Device


@dataclass(frozen=True)
class BoardProcessor:
    """A processor, as the board describes it.

    Attributes
    ----------
    cores : tuple of int
        Cores of the cluster; empty for a device without cores, and for a server, which shares out its own.
    """

    device: Device
    cores: tuple[int, ...]
    speed: float = 1.0

    @property
    def watts(self) -> float:
        """Power of a core or device at work, above rest."""
        device_watts = self.device.watts_busy - self.device.watts_idle
        speeds = [self.device.speed(core) for core in self.device.cores]
        # Of a server, one slot.
        return device_watts * self.speed / sum(speeds) if self.cores else device_watts / self.device.slot_count


def board_processors(board: Board) -> list[BoardProcessor]:
    """Return the clusters of cores and the coreless devices."""
    processors = []
    for device in board.devices:
        clusters = [(cluster.cores, cluster.speed) for cluster in device.clusters] or [(device.cores, 1.0)]
        if device.capabilities.has_slots:
            clusters = [((), 1.0)]
        processors += [BoardProcessor(device, cores, speed) for cores, speed in clusters]
    return processors
