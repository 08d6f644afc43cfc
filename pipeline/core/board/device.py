"""Device, Cluster, Accuracy and Link: processors and the links of their memories."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipeline.core.board.device_kinds import ARM_EFFICIENCY, CPU_EFFICIENCY, DeviceKind, device_kind, kind_names

TVM = "tvm"
"""Runtime of stages compiled by TVM."""


def runtime_names() -> tuple[str, ...]:
    """Return the names of all runtimes for CPU stages."""
    return (TVM, *kind_names(lambda kind: kind.is_cpu_runtime))


@dataclass(frozen=True)
class Cluster:
    """Cores of one type, such as the big ones of big.LITTLE."""

    name: str
    """Name of the cluster, such as ``"big"``, or the core's own."""
    cores: tuple[int, ...]
    """Their kernel's numbers."""
    speed: float = 1.0
    """Speed of one core, as a multiple of the device's `flops` and `bytes_per_s`."""
    target: Mapping[str, object] | None = None
    """Keys of the device's target that are others on these cores, such as ``mcpu``; None if they are the same."""


@dataclass(frozen=True)
class Accuracy:
    """Ratio of published to predicted rates of a device."""

    figures: int
    """Number of published figures that were compared."""
    low: float
    high: float
    """Shares of the predicted rate. Between them lie 90 % of the figures."""


@dataclass(frozen=True)
class Device:
    """One processor of a board."""

    name: str
    """Name in plans, such as ``"cpu"`` or ``"gpu0"``."""
    kind: str = "cpu"
    """Adapter that drives it, such as ``"cpu"`` or ``"simulated"``; `pipeline.core.board.device_kinds` has all."""
    index: int = 0
    """Number among the devices of its kind on the machine."""
    cores: tuple[int, ...] = ()
    """Host cores that its stages may use (their kernel's numbers); those of `clusters` where there are any; empty for a
    device beside the CPU."""
    target: Mapping[str, object] | None = None
    """TVM target as a dictionary; None stands for this machine's own processor with all its features."""
    memory: str = "host"
    """Name of the memory its tensors live in. Devices with the same memory pass tensors by reference."""
    memory_bytes: int = 0
    """Size of that memory in bytes, 0 if unknown."""
    flops: float = 2e9
    """Attainable floating-point operations per second of one core, for estimates."""
    bytes_per_s: float = 8e9
    """Attainable bytes per second of one core to and from that memory, for estimates."""
    launch_s: float = 1e-6
    """Seconds to start one operator, for estimates."""
    clusters: tuple[Cluster, ...] = ()
    """The cores by their speed, the fastest first; empty if they are all alike."""
    address: str = ""
    """Address at which another machine serves the device, such as ``"remote://10.0.0.2:9190/cpu"``; empty for this
    one's."""
    memory_bytes_per_s: float = 0.0
    """Attainable bytes per second of that memory, all readers together; 0 if unknown."""
    families: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    """Families of operators that it can run (of `pipeline.core.board.board_checks.FAMILIES`), and element types of the
    tensors that they take and make; empty for all."""
    at_once: int = 0
    """Number of stages on it at the same time; 0 stands for one on each core, or one without cores."""
    int8_flops: float = 0.0
    float16_flops: float = 0.0
    bfloat16_flops: float = 0.0
    """The same for eight-bit integers, and for products of 16 bits in stages of that precision; 0 stands for `flops`.
    """
    result_flops: float = 0.0
    """Operations in floats that each result costs beside its products: loads, requantising, activation and store."""
    element_bytes: int = 0
    """Bytes of a floating-point number in the device's tensors, whatever the model says; 0 stands for the model's."""
    dataflow: bool = False
    """True if parts of the chip compute all layers at once, while tensors of other frames cross its borders."""
    resident_bytes: int = 0
    """Bytes of parameters that the chip keeps between frames."""
    refill_bytes_per_s: float = 0.0
    """Bytes per second of parameters beyond those, which come with each frame; 0 if all stay, or none does."""
    efficiency: Mapping[str, float] | None = None
    """Share of these rates that each family of operators reaches, where it is not the usual one of its kind of device
    and processor."""
    watts_idle: float = 0.0
    watts_busy: float = 0.0
    """Power of the whole device at rest, and with all that it has at work; 0 if unknown."""
    runtimes: tuple[str, ...] = ()
    """Runtimes of its stages, each another kind of device that runs models on these cores, or ``"tvm"``; empty for TVM
    alone. A stage names another one as in ``"cpu/onnxruntime"``."""
    measured: tuple[str, ...] = ()
    """Names of those of its numbers that were measured; all others are estimates."""
    slots: int = 0
    """Frames that a server computes at once, each on an even share of its cores; 0 stands for what the server says, or
    one on each of `cores`."""
    accuracy: Accuracy | None = None
    """Range of published rates around the predicted ones; None where there are none to compare with."""

    def __post_init__(self) -> None:
        if not self.cores and self.clusters:
            # The only field that follows from another; a file need not say it twice.
            object.__setattr__(self, "cores", tuple(core for cluster in self.clusters for core in cluster.cores))

    @property
    def variants(self) -> tuple[str, ...]:
        """Names for stages: the device, and one per further runtime."""
        names = tuple(self.name if runtime == TVM else f"{self.name}/{runtime}" for runtime in self.runtimes)
        return names or (self.name,)

    def is_called(self, name: str) -> bool:
        """Compare a name with the device's, without runtimes."""
        return name == self.name or name in self.variants

    def with_runtime(self, runtime: str) -> Device:
        """Return the device with stages executed by another runtime.

        The target is that runtime's default.
        """
        name, efficiency = f"{self.name}/{runtime}", self.family_efficiency
        return replace(self, name=name, kind=runtime, target=None, runtimes=(), efficiency=efficiency)

    @property
    def places(self) -> int:
        """Number of stages on it at a time."""
        return self.at_once or max(1, len(self.cores), self.slots)

    @property
    def capabilities(self) -> DeviceKind:
        """Entry of its kind in the registry."""
        return device_kind(self.kind)

    @property
    def likeness(self) -> str:
        """Text that devices of equal make have in common.

        They differ in name, index, address, and in target keys that select one of them.
        """
        target = {key: value for key, value in (self.target or {}).items() if key != "options"}
        if "device" in target:
            # Such as OpenVINO's "GPU.1".
            target["device"] = str(target["device"]).rstrip(".:0123456789")
        return repr(replace(self, name="", index=0, address="", memory="", target=target, accuracy=None))

    @property
    def overlaps(self) -> bool:
        """True if further replicas only overlap transfers.

        Such a device computes one frame at a time in each slot.
        """
        return self.capabilities.overlaps or self.dataflow

    @property
    def family_efficiency(self) -> Mapping[str, float]:
        """Share of its rates that each family of operators reaches."""
        # A runtime for CPUs may drive a chip instead.
        usual = {} if self.capabilities.is_cpu_runtime and not self.cores else self.capabilities.efficiency
        if usual is CPU_EFFICIENCY and self._is_arm:
            usual = ARM_EFFICIENCY
        return {**usual, **(self.efficiency or {})}

    @property
    def _is_arm(self) -> bool:
        triple = str((self.target or {}).get("mtriple", platform.machine()))
        return triple.startswith(("aarch64", "arm"))

    @property
    def slot_count(self) -> int:
        """Number of frames it computes at once, beyond overlapped transfers."""
        if not self.capabilities.has_slots:
            return 1
        return self.slots or max(1, len(self.cores))

    def speed(self, core: int) -> float:
        """Return a core's speed, as a multiple of `flops` and `bytes_per_s`."""
        return next((cluster.speed for cluster in self.clusters if core in cluster.cores), 1.0)


@dataclass(frozen=True)
class Link:
    """Cost of moving bytes between two memories, either way."""

    ends: tuple[str, str]
    """Names of the two memories."""
    bytes_per_s: float
    """Bandwidth in bytes per second; without meaning where the bytes are shared."""
    latency_s: float = 0.0
    """Seconds for an empty transfer."""
    shared: bool = False
    """True if both ends are the same chips, so that nothing is copied and only `latency_s` is spent, for caches to be
    written back."""
    measured: bool = False
    """True if its numbers were measured; otherwise they are estimates."""
    same_chips: bool = False
    """True if both ends are the same chips although bytes are copied, so that their devices share bytes per second."""
