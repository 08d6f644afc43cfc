"""What makes a board possible: its names fit together, and its numbers are numbers of something."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pipeline.errors import BoardError, near

if TYPE_CHECKING:
    from pipeline.board import Board, Device, Link

FAMILIES = (
    "convolution", "depthwise", "matmul", "pooling", "reduction", "normalization", "elementwise", "movement", "other",
)  # fmt: skip
"""Families of operators: those of one family reach a similar share of a device's arithmetic."""

RATES = ("flops", "bytes_per_s")
AMOUNTS = (
    "index", "memory_bytes", "memory_bytes_per_s", "at_once", "int8_flops", "launch_s", "watts_idle", "watts_busy",
)  # fmt: skip
MEASURABLE = (*RATES, *AMOUNTS, "efficiency")


def check(board: Board) -> None:
    """Raise `BoardError` unless the board is possible."""
    if not board.devices:
        raise BoardError(f"board {board.name!r} has no devices; give it at least one")
    for device in board.devices:
        _check_device(device)
    names = [device.name for device in board.devices]
    if doubled := _doubled(names):
        raise BoardError(f"board {board.name!r} has two devices called {doubled!r}; give each its own name")
    for link in board.links:
        _check_link(board, link)
    if doubled := _doubled(" - ".join(sorted(link.ends)) for link in board.links):
        raise BoardError(f"board {board.name!r} has two links {doubled}; leave one out")


def _check_device(device: Device) -> None:
    title = f"device {device.name!r}"
    if not device.name:
        raise BoardError("a device has no name; give it one, such as 'cpu'")
    if not (_above_0(device.flops) and _above_0(device.bytes_per_s)) or not _at_least_0(device.launch_s):
        raise BoardError(f"{title}: flops and bytes_per_s must be above 0, launch_s at least 0")
    for field in AMOUNTS:
        if not _at_least_0(getattr(device, field)):
            raise BoardError(f"{title}: {field} is {getattr(device, field)}; it must be at least 0")
    if device.watts_busy < device.watts_idle:
        raise BoardError(f"{title}: watts_busy is {device.watts_busy:g}, less than watts_idle, {device.watts_idle:g}")
    _check_cores(title, device)
    _known(f"{title}: family", device.families, FAMILIES)
    _known(f"{title}: efficiency", device.efficiency or (), FAMILIES)
    _known(f"{title}: measured", device.measured, MEASURABLE)
    for family, share in (device.efficiency or {}).items():
        if not _above_0(share):
            raise BoardError(f"{title}: efficiency of {family!r} is {share}; it must be above 0")


def _check_cores(title: str, device: Device) -> None:
    if (doubled := _doubled(device.cores)) is not None or min(device.cores, default=0) < 0:
        wrong = min(device.cores) if doubled is None else doubled
        raise BoardError(f"{title}: core {wrong} cannot be; cores are numbers from 0, each of them once")
    for each in device.clusters:
        if not each.cores or not _above_0(each.speed):
            raise BoardError(f"{title}: cluster {each.name!r} must have cores, and a speed above 0")
    inside = sorted(core for each in device.clusters for core in each.cores)
    if device.clusters and inside != sorted(device.cores):
        raise BoardError(
            f"{title}: its clusters have the cores {inside}, but it has {sorted(device.cores)}; each of its cores "
            "belongs to one cluster"
        )
    if doubled := _doubled(each.name for each in device.clusters):
        raise BoardError(f"{title} has two clusters called {doubled!r}; give each its own name")


def _check_link(board: Board, link: Link) -> None:
    title = f"link {' - '.join(link.ends)}"
    memories = list(dict.fromkeys(device.memory for device in board.devices))
    for end in link.ends:
        if end not in memories:
            raise BoardError(
                f"{title}: no device of board {board.name!r} has the memory {end!r}; they have {', '.join(memories)}"
                f"{near(end, memories)}"
            )
    if link.ends[0] == link.ends[1]:
        raise BoardError(f"{title}: both ends are one memory, in which nothing is copied; leave it out")
    if not (_above_0(link.bytes_per_s) and _at_least_0(link.latency_s)):
        raise BoardError(f"{title}: bytes_per_s must be above 0, latency_s at least 0")


def _known(what: str, names: Iterable[str], candidates: tuple[str, ...]) -> None:
    for name in names:
        if name not in candidates:
            raise BoardError(f"{what} {name!r} is unknown; there are {', '.join(candidates)}{near(name, candidates)}")


def _doubled(values: Iterable[object]) -> object | None:
    listed = list(values)
    return next((each for number, each in enumerate(listed) if each in listed[:number]), None)


def _above_0(value: float) -> bool:
    return 0 < value < math.inf


def _at_least_0(value: float) -> bool:
    return 0 <= value < math.inf
