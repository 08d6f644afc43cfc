"""Board, Device and Link: what a plan may use, as immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.errors import BoardError, near


@dataclass(frozen=True)
class Device:
    """One processor of a board.

    Attributes
    ----------
    name : str
        How plans call it, such as ``"cpu"`` or ``"gpu0"``.
    kind : str
        Which adapter drives it: ``"cpu"``, ``"null"`` or ``"simulated"``.
    index : int
        Number among the devices of its kind on the machine.
    cores : tuple of int
        Host cores that its stages may use (their kernel's numbers); empty for a device beside the CPU.
    target : mapping or None
        TVM target as a dictionary; None stands for this machine's own processor with all its features.
    memory : str
        Name of the memory its tensors live in.  Devices with the same memory pass tensors by reference.
    memory_bytes : int
        Size of that memory in bytes, 0 if unknown.
    flops : float
        Attainable floating-point operations per second of one core, for estimates.
    bytes_per_s : float
        Attainable bytes per second of one core to and from that memory, for estimates.
    launch_s : float
        Seconds to start one operator, for estimates.
    """

    name: str
    kind: str = "cpu"
    index: int = 0
    cores: tuple[int, ...] = ()
    target: Mapping[str, object] | None = None
    memory: str = "host"
    memory_bytes: int = 0
    flops: float = 2e9
    bytes_per_s: float = 8e9
    launch_s: float = 1e-6


@dataclass(frozen=True)
class Link:
    """The cost of moving bytes from one memory to another, in either direction.

    Attributes
    ----------
    ends : tuple of two str
        Names of the two memories.
    bytes_per_s : float
        Bandwidth in bytes per second.
    latency_s : float
        Seconds for an empty transfer.
    """

    ends: tuple[str, str]
    bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True)
class Board:
    """The devices that one plan may use, and the links between their memories.

    Raises
    ------
    BoardError
        If there is no device, two have one name, or a rate is not above 0.
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = field(default=())

    def __post_init__(self) -> None:
        names = [device.name for device in self.devices]
        if not names:
            raise BoardError(f"board {self.name!r} has no devices; give it at least one")
        for device in self.devices:
            if min(device.flops, device.bytes_per_s) <= 0 or device.launch_s < 0:
                raise BoardError(f"device {device.name!r}: flops and bytes_per_s must be above 0, launch_s at least 0")
        if doubled := {name for name in names if names.count(name) > 1}:
            raise BoardError(f"board {self.name!r} has two devices called {min(doubled)!r}; give each its own name")

    def device(self, name: str) -> Device:
        """Return the device called `name`, or raise `BoardError` with the names that exist."""
        for device in self.devices:
            if device.name == name:
                return device
        names = [device.name for device in self.devices]
        raise BoardError(f"board {self.name!r} has no device {name!r}; it has {', '.join(names)}{near(name, names)}")

    def transfer_s(self, source: Device, target: Device, nbytes: int) -> float:
        """Return the seconds to move `nbytes` from `source` to `target`.

        Within one memory nothing is copied, but the reader's caches have to fetch the bytes once.
        """
        if source.memory == target.memory:
            return nbytes / target.bytes_per_s
        for link in self.links:
            if set(link.ends) == {source.memory, target.memory}:
                return link.latency_s + nbytes / link.bytes_per_s
        raise BoardError(
            f"board {self.name!r} has no link between {source.memory!r} (device {source.name!r}) and "
            f"{target.memory!r} (device {target.name!r}); add one to the board"
        )
