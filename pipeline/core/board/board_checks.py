"""Checks of a board: names fit together, numbers are possible."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pipeline.core.board.device import Device, Link, runtime_names
from pipeline.errors import BoardError, near

FAMILIES = (
    "convolution", "depthwise", "matmul", "pooling", "reduction", "normalization", "elementwise", "movement", "other",
)  # fmt: skip
"""Families of operators with a similar share of a device's arithmetic."""

# Rates divide, and so must be above 0; amounts may be 0, which mostly stands for unknown.
RATES = ("flops", "bytes_per_s")
AMOUNTS = (
    "index", "memory_bytes", "memory_bytes_per_s", "at_once", "int8_flops", "float16_flops",
    "bfloat16_flops", "result_flops", "element_bytes", "resident_bytes", "refill_bytes_per_s", "launch_s",
    "watts_idle", "watts_busy", "slots",
)  # fmt: skip
MEASURABLE = (*RATES, *AMOUNTS, "efficiency")

LARGEST_INDEX = (1 << 31) - 1
"""Largest device number of DLPack, and so of TVM: an int32."""


def check_devices(board: str, devices: Sequence[Device]) -> None:
    """Raise `BoardError` for impossible devices or equal names."""
    if not devices:
        raise BoardError(f"board {board!r} has no devices; give it at least one")
    for device in devices:
        _check_device(device)
    # Plans and links find devices by name: with two of one name, the second would never be used.
    if name := _find_repeated(device.name for device in devices):
        raise BoardError(f"board {board!r} has two devices called {name!r}; give each its own name")


def check_links(board: str, devices: Sequence[Device], links: Sequence[Link]) -> None:
    """Raise `BoardError` unless each link connects two memories, once."""
    # Not a set: messages list them in the order of the board's file.
    memories = list(dict.fromkeys(device.memory for device in devices))
    for link in links:
        _check_link(board, memories, link)
    if ends := _find_repeated(" - ".join(sorted(link.ends)) for link in links):
        raise BoardError(f"board {board!r} has two links {ends}; leave one out")


def _check_device(device: Device) -> None:
    title = f"device {device.name!r}"
    if not device.name:
        raise BoardError("a device has no name; give it one, such as 'cpu'")
    if not (_is_positive(device.flops) and _is_positive(device.bytes_per_s)) or not _is_nonnegative(device.launch_s):
        raise BoardError(f"{title}: flops and bytes_per_s must be above 0, launch_s at least 0")
    for field in AMOUNTS:
        if not _is_nonnegative(getattr(device, field)):
            raise BoardError(f"{title}: {field} is {getattr(device, field)}; it must be at least 0")
    if device.index > LARGEST_INDEX:
        raise BoardError(f"{title}: index is {device.index}; it must be at most {LARGEST_INDEX}")
    if device.watts_busy < device.watts_idle:
        raise BoardError(f"{title}: watts_busy is {device.watts_busy:g}, less than watts_idle, {device.watts_idle:g}")
    _check_cores(title, device)
    if device.slots and not device.capabilities.has_slots:
        raise BoardError(f"{title}: only servers of the kind 'remote' have slots; leave out 'slots'")
    _check_runtimes(title, device)
    _check_names(f"{title}: family", device.families, FAMILIES)
    _check_names(f"{title}: efficiency", device.efficiency or (), FAMILIES)
    _check_names(f"{title}: measured", device.measured, MEASURABLE)
    _check_shares(title, device)


def _check_shares(title: str, device: Device) -> None:
    for family, share in (device.efficiency or {}).items():
        if not _is_positive(share):
            raise BoardError(f"{title}: efficiency of {family!r} is {share}; it must be above 0")
    accuracy = device.accuracy
    if accuracy and not (accuracy.figures > 0 and 0 < accuracy.low <= accuracy.high < math.inf):
        raise BoardError(f"{title}: accuracy must have figures above 0, and low above 0 and at most high")


def _check_cores(title: str, device: Device) -> None:
    if (repeated_core := _find_repeated(device.cores)) is not None or min(device.cores, default=0) < 0:
        bad_core = min(device.cores) if repeated_core is None else repeated_core
        raise BoardError(f"{title}: core {bad_core} cannot be; cores are numbers from 0, each of them once")
    for cluster in device.clusters:
        if not cluster.cores or not _is_positive(cluster.speed):
            raise BoardError(f"{title}: cluster {cluster.name!r} must have cores, and a speed above 0")
    cluster_cores = sorted(core for cluster in device.clusters for core in cluster.cores)
    if device.clusters and cluster_cores != sorted(device.cores):
        raise BoardError(
            f"{title}: its clusters have the cores {cluster_cores}, but it has {sorted(device.cores)}; each of its "
            "cores belongs to one cluster"
        )
    if name := _find_repeated(cluster.name for cluster in device.clusters):
        raise BoardError(f"{title} has two clusters called {name!r}; give each its own name")


def _check_runtimes(title: str, device: Device) -> None:
    if not device.runtimes:
        return
    if not device.cores or device.address:
        raise BoardError(f"{title}: only cores of this machine have several runtimes; leave out 'runtimes'")
    _check_names(f"{title}: runtime", device.runtimes, runtime_names())
    if name := _find_repeated(device.runtimes):
        raise BoardError(f"{title} has the runtime {name!r} twice; leave one out")


def _check_link(board: str, memories: Sequence[str], link: Link) -> None:
    title = f"link {' - '.join(link.ends)}"
    for end in link.ends:
        if end not in memories:
            raise BoardError(
                f"{title}: no device of board {board!r} has the memory {end!r}; they have {', '.join(memories)}"
                f"{near(end, memories)}"
            )
    if link.ends[0] == link.ends[1]:
        raise BoardError(f"{title}: both ends are one memory, in which nothing is copied; leave it out")
    if not (_is_positive(link.bytes_per_s) and _is_nonnegative(link.latency_s)):
        raise BoardError(f"{title}: bytes_per_s must be above 0, latency_s at least 0")


def _check_names(title: str, names: Iterable[str], candidates: tuple[str, ...]) -> None:
    for name in names:
        if name not in candidates:
            raise BoardError(f"{title} {name!r} is unknown; there are {', '.join(candidates)}{near(name, candidates)}")


def _find_repeated(values: Iterable[object]) -> object | None:
    items = list(values)
    return next((item for number, item in enumerate(items) if item in items[:number]), None)


def _is_positive(value: float) -> bool:
    return 0 < value < math.inf


def _is_nonnegative(value: float) -> bool:
    return 0 <= value < math.inf
