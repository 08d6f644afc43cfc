"""Board, Device, Cluster and Link: what a plan may use, as immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pipeline.board_rules import check
from pipeline.errors import BoardError, near

KINDS = ("cpu", "cuda", "opencl", "vulkan", "vta", "remote", "rpc", "simulated", "null", "python")
"""Kinds of device that a board may describe, whether or not something drives them here."""


@dataclass(frozen=True)
class Cluster:
    """Cores of a device that are alike, such as the big ones of a big.LITTLE processor.

    Attributes
    ----------
    name : str
        Such as ``"big"``, or the core's own name.
    cores : tuple of int
        Their kernel's numbers.
    speed : float
        How fast one of them is, as a multiple of the device's `flops` and `bytes_per_s`.
    """

    name: str
    cores: tuple[int, ...]
    speed: float = 1.0


@dataclass(frozen=True)
class Device:
    """One processor of a board.

    Attributes
    ----------
    name : str
        How plans call it, such as ``"cpu"`` or ``"gpu0"``.
    kind : str
        Which adapter drives it, such as ``"cpu"``, ``"cuda"`` or ``"simulated"``; `KINDS` has all.
    index : int
        Number among the devices of its kind on the machine.
    cores : tuple of int
        Host cores that its stages may use (their kernel's numbers); those of `clusters` where there are any; empty
        for a device beside the CPU.
    clusters : tuple of Cluster
        The cores by their speed, the fastest first; empty if they are all alike.
    target : mapping or None
        TVM target as a dictionary; None stands for this machine's own processor with all its features.
    address : str
        Where a device of another machine is served, such as ``"remote://10.0.0.2:9190/cpu"``; empty for this one's.
    memory : str
        Name of the memory its tensors live in.  Devices with the same memory pass tensors by reference.
    memory_bytes : int
        Size of that memory in bytes, 0 if unknown.
    memory_bytes_per_s : float
        Attainable bytes per second of that memory, all readers together; 0 if unknown.
    families, dtypes : tuple of str
        Families of operators that it can run (of `pipeline.board_rules.FAMILIES`), and element types of the tensors
        that they take and make; empty for all.
    at_once : int
        How many stages may run on it at the same time; 0 stands for one on each core, or one without cores.
    flops : float
        Attainable floating-point operations per second of one core, for estimates.
    int8_flops : float
        The same for eight-bit integers; 0 stands for `flops`.
    efficiency : mapping of str to float, or None
        Share of `flops` that each family of operators reaches, where it is not the usual one of its kind of device.
    bytes_per_s : float
        Attainable bytes per second of one core to and from that memory, for estimates.
    launch_s : float
        Seconds to start one operator, for estimates.
    watts_idle, watts_busy : float
        Power of the whole device at rest, and with all that it has at work; 0 if unknown.
    measured : tuple of str
        Names of those of its numbers that were measured; all others are estimates.
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
    clusters: tuple[Cluster, ...] = ()
    address: str = ""
    memory_bytes_per_s: float = 0.0
    families: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    at_once: int = 0
    int8_flops: float = 0.0
    efficiency: Mapping[str, float] | None = None
    watts_idle: float = 0.0
    watts_busy: float = 0.0
    measured: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.cores and self.clusters:
            # The only field that follows from another; a file need not say it twice.
            object.__setattr__(self, "cores", tuple(core for each in self.clusters for core in each.cores))

    @property
    def places(self) -> int:
        """How many stages may run on it at the same time."""
        return self.at_once or max(1, len(self.cores))

    @property
    def overlaps(self) -> bool:
        """Whether it computes one frame at a time, so that replicas of a stage only overlap its transfers."""
        return self.kind in ("cuda", "remote")

    def speed(self, core: int) -> float:
        """Return how fast one of its cores is, as a multiple of `flops` and `bytes_per_s`."""
        return next((each.speed for each in self.clusters if core in each.cores), 1.0)


@dataclass(frozen=True)
class Link:
    """The cost of moving bytes from one memory to another, in either direction.

    Attributes
    ----------
    ends : tuple of two str
        Names of the two memories.
    bytes_per_s : float
        Bandwidth in bytes per second; without meaning where the bytes are shared.
    latency_s : float
        Seconds for an empty transfer.
    shared : bool
        Whether both ends are the same chips, so that nothing is copied and only `latency_s` is spent, for caches to be
        written back.
    measured : bool
        Whether its numbers were measured; otherwise they are estimates.
    """

    ends: tuple[str, str]
    bytes_per_s: float
    latency_s: float = 0.0
    shared: bool = False
    measured: bool = False


@dataclass(frozen=True)
class Board:
    """The devices that one plan may use, and the links between their memories.

    Attributes
    ----------
    name : str
    devices : tuple of Device
    links : tuple of Link
    about : str
        What it is, for people.

    Raises
    ------
    BoardError
        If there is no device, two have one name, or a number is impossible; the message names it.
    """

    name: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...] = field(default=())
    about: str = ""

    def __post_init__(self) -> None:
        check(self)

    def device(self, name: str) -> Device:
        """Return the device called `name`, or raise `BoardError` with the names that exist."""
        for device in self.devices:
            if device.name == name:
                return device
        names = [device.name for device in self.devices]
        raise BoardError(f"board {self.name!r} has no device {name!r}; it has {', '.join(names)}{near(name, names)}")

    def with_target(self, name: str, keys: Mapping[str, object]) -> Board:
        """Return this board with some keys of a device's target set; raises as `device`."""
        own = self.device(name)
        changed = replace(own, target={**(own.target or {}), **keys})
        return replace(self, devices=tuple(changed if each is own else each for each in self.devices))

    def link(self, one: str, other: str) -> Link | None:
        """Return the link between two memories, or None."""
        return next((each for each in self.links if set(each.ends) == {one, other}), None)

    def transfer_s(self, source: Device, target: Device, nbytes: int) -> float:
        """Return the seconds to move `nbytes` from `source` to `target`.

        Within one memory nothing is copied, but the reader's caches have to fetch the bytes once.
        """
        if source.memory == target.memory:
            return nbytes / target.bytes_per_s
        link = self.link(source.memory, target.memory)
        if link is None:
            raise BoardError(
                f"board {self.name!r} has no link between {source.memory!r} (device {source.name!r}) and "
                f"{target.memory!r} (device {target.name!r}); add one to the board"
            )
        return link.latency_s + nbytes / (target.bytes_per_s if link.shared else link.bytes_per_s)
