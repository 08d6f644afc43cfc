"""``soc-pipeline devices``: what is really present on this machine, and what TVM can drive."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import boards
from boards import topology
from pipeline.board import Cluster, Device
from pipeline.commands import common

if TYPE_CHECKING:
    from pipeline.executor.present import Accelerator

HELP = "List the devices that are present on this machine, with cores and memory, and whether stages can run on them."
EXAMPLE = "soc-pipeline devices --json"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(options: argparse.Namespace) -> int:
    """Look, and print."""
    with common.progress("looking for devices"):
        machine = look()
    if options.json:
        common.print_json(machine)
    else:
        _show(machine)
    return 0


@dataclass(frozen=True)
class Found:
    """A device that is present; `driven` says whether stages can run on it."""

    name: str
    kind: str
    what: str
    cores: tuple[int, ...]
    clusters: tuple[Cluster, ...]
    memory_bytes: int
    driven: bool


@dataclass(frozen=True)
class Machine:
    """What is present, what is not, and what cores share."""

    devices: tuple[Found, ...]
    absent: tuple[str, ...]
    caches: tuple[topology.Cache, ...]
    threads_of_one_core: tuple[tuple[int, ...], ...]
    numa_nodes: Mapping[int, tuple[int, ...]]


def look() -> Machine:
    """Return what this machine has."""
    from pipeline.executor import present, processor

    cpu = boards.get(boards.HOST).device("cpu")
    found = present.accelerators()
    return Machine(
        devices=(_cpu(cpu, processor.full_name()), *map(_accelerator, found)),
        absent=tuple(kind for kind in present.ACCELERATORS if kind not in {each.kind for each in found}),
        caches=topology.caches(cpu.cores),
        threads_of_one_core=topology.siblings(cpu.cores),
        numa_nodes=topology.nodes(),
    )


def _cpu(device: Device, name: str) -> Found:
    return Found(
        device.name, device.kind, name or "processor", device.cores, device.clusters, device.memory_bytes, driven=True
    )


def _accelerator(found: Accelerator) -> Found:
    what = f"{found.name} {found.version}".strip()
    return Found(f"{found.kind}{found.index}", found.kind, what, (), (), found.memory_bytes, driven=found.driven)


def _show(machine: Machine) -> None:
    out = common.console()
    table = common.table("Devices of this machine", "device", "kind", "what it is", "cores", ">memory", "runs stages")
    for each in machine.devices:
        clusters = "; ".join(f"{one.name} {_listed(one.cores)}, speed {one.speed:g}" for one in each.clusters)
        table.add_row(
            each.name,
            each.kind,
            each.what,
            clusters or _listed(each.cores) or "-",
            common.amount(each.memory_bytes),
            "yes" if each.driven else "no: TVM finds it, but nothing drives it yet",
        )
    out.print(table)
    for line in lines(machine):
        out.print(line, soft_wrap=True)


def lines(machine: Machine) -> Iterator[str]:
    """Say what cores share, and what was not found."""
    levels = [(each.level, each.nbytes, len(each.cores)) for each in machine.caches]
    for level, nbytes, shared in dict.fromkeys(levels):
        times = levels.count((level, nbytes, shared))
        yield f"Cache L{level}: {times} of {nbytes >> 10} KiB, each for {shared} core{'s' * (shared > 1)}"
    for group in machine.threads_of_one_core:
        yield f"Cores {_listed(group)} are threads of one core and share its arithmetic"
    if len(machine.numa_nodes) > 1:
        for number, cores in machine.numa_nodes.items():
            yield f"NUMA node {number}: cores {_listed(cores)}"
    if machine.absent:
        yield f"Not found: {', '.join(machine.absent)} (no such device, or TVM was built without it)"


def _listed(cores: Sequence[int]) -> str:
    return ",".join(map(str, cores))
