"""Topology of this machine: core differences and shared caches, from Linux."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.board.board import Cluster

ROOT = Path("/sys/devices/system")

ALIKE = 0.9
"""Least share of the fastest core's speed within its cluster. Turbo clocks differ by less."""

_NAMES = {2: ("big", "little"), 3: ("big", "middle", "little")}


@dataclass(frozen=True)
class Cache:
    """A cache of data."""

    level: int
    nbytes: int
    cores: tuple[int, ...]
    """Cores that share it."""


def clusters(cores: Sequence[int], root: Path = ROOT) -> tuple[Cluster, ...]:
    """Return the clusters of `cores` by speed, fastest first; none if alike."""
    # The capacity counts instructions per cycle as well, but only boards' firmware gives it.
    for source in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        speeds = {core: _number(root / f"cpu/cpu{core}" / source) for core in cores}
        groups = _alike({core: speed for core, speed in speeds.items() if speed})
        # A core without a number, such as one that is offline, would belong to no cluster.
        if len(groups) > 1 and sum(map(len, groups)) == len(cores):
            fastest = max(speeds.values())
            labels = _NAMES.get(len(groups), tuple(f"cluster{number}" for number in range(len(groups))))
            return tuple(
                Cluster(label, tuple(group), round(max(speeds[core] for core in group) / fastest, 3))
                for label, group in zip(labels, groups, strict=True)
            )
    return ()


def _alike(speeds: dict[int, int]) -> list[list[int]]:
    groups: list[list[int]] = []
    for core in sorted(speeds, key=lambda core: (-speeds[core], core)):
        # Compared with the fastest of the group, not with the last one: many small steps would join big and little
        # cores.
        if not groups or speeds[core] < ALIKE * speeds[groups[-1][0]]:
            groups.append([])
        groups[-1].append(core)
    return [sorted(group) for group in groups]


def caches(cores: Iterable[int], root: Path = ROOT) -> tuple[Cache, ...]:
    """Return the data caches of `cores`, smallest level first."""
    groups = {}
    for core in cores:
        for folder in sorted((root / f"cpu/cpu{core}/cache").glob("index*")):
            cache = Cache(_number(folder / "level"), _size(folder / "size"), _parse_list(folder / "shared_cpu_list"))
            if _text(folder / "type") != "Instruction":
                # A shared cache is listed by each core that shares it.
                groups[cache.level, cache.cores] = cache
    return tuple(groups[key] for key in sorted(groups))


def siblings(cores: Iterable[int], root: Path = ROOT) -> tuple[tuple[int, ...], ...]:
    """Return groups of `cores` that are one core's threads."""
    groups = {_parse_list(root / f"cpu/cpu{core}/topology/thread_siblings_list") for core in cores}
    return tuple(sorted(group for group in groups if len(group) > 1))


def nodes(root: Path = ROOT) -> dict[int, tuple[int, ...]]:
    """Return the nearby cores of every NUMA node."""
    groups = {int(path.name[4:]): _parse_list(path / "cpulist") for path in (root / "node").glob("node[0-9]*")}
    return dict(sorted(groups.items()))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.isdecimal() else 0


def _size(path: Path) -> int:
    text = _text(path)
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    digits = text.rstrip("KMG")
    return int(digits) * unit if digits.isdecimal() else 0


def _parse_list(path: Path) -> tuple[int, ...]:
    """Return the numbers of a list such as ``0-3,8``."""
    spans = [part.partition("-") for part in _text(path).split(",")]
    if not all(first.isdecimal() and (last or first).isdecimal() for first, _, last in spans):
        return ()
    return tuple(core for first, _, last in spans for core in range(int(first), int(last or first) + 1))
