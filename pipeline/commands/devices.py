"""``soc-pipeline devices``: the processors actually present on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import boards
from pipeline.commands.shared import console
from pipeline.core.board.board import Cluster, Device
from pipeline.executor import topology

if TYPE_CHECKING:
    from pipeline.executor.devices.accelerator import Accelerator

HELP = "List the devices that are present on this machine, with cores and memory."
EXAMPLE = "soc-pipeline devices --json"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(options: argparse.Namespace) -> int:
    """Look, and print."""
    with console.progress("looking for devices"):
        machine = look()
    if options.json:
        console.print_json(machine)
    else:
        show(machine)
    return 0


@dataclass(frozen=True)
class PresentDevice:
    """A present device, usable for stages."""

    name: str
    kind: str
    what: str
    cores: tuple[int, ...]
    clusters: tuple[Cluster, ...]
    memory_bytes: int


@dataclass(frozen=True)
class Machine:
    """Present processors, reasons for absent ones, and shared caches."""

    devices: tuple[PresentDevice, ...]
    absent: Mapping[str, str]
    runtimes: Mapping[str, Sequence[str]]
    caches: tuple[topology.Cache, ...]
    threads_of_one_core: tuple[tuple[int, ...], ...]
    numa_nodes: Mapping[int, tuple[int, ...]]


def look() -> Machine:
    """Look at this machine."""
    from pipeline.executor import detection, host_target

    cpu = boards.get(boards.HOST).device("cpu")
    accelerators = detection.accelerators()
    present_kinds = {accelerator.kind for accelerator in accelerators}
    return Machine(
        devices=(_cpu(cpu, host_target.full_name()), *map(_accelerator, accelerators)),
        absent={
            kind: detection.why_not_found(kind) for kind in detection.detectable_kinds() if kind not in present_kinds
        },
        runtimes=detection.runtimes(),
        caches=topology.caches(cpu.cores),
        threads_of_one_core=topology.siblings(cpu.cores),
        numa_nodes=topology.nodes(),
    )


def _cpu(device: Device, name: str) -> PresentDevice:
    return PresentDevice(
        device.name, device.kind, name or "processor", device.cores, device.clusters, device.memory_bytes
    )


def _accelerator(accelerator: Accelerator) -> PresentDevice:
    title = f"{accelerator.name} {accelerator.version}".strip()
    return PresentDevice(
        f"{accelerator.kind}{accelerator.index}", accelerator.kind, title, (), (), accelerator.memory_bytes
    )


def show(machine: Machine) -> None:
    """Print a table of devices, with cores and caches below."""
    out = console.console()
    table = console.table("Devices of this machine", "device", "kind", "what it is", "cores", ">memory")
    for device in machine.devices:
        clusters = "; ".join(
            f"{cluster.name} {_core_list(cluster.cores)}, speed {cluster.speed:g}" for cluster in device.clusters
        )
        table.add_row(
            device.name,
            device.kind,
            device.what,
            clusters or _core_list(device.cores) or "-",
            console.amount(device.memory_bytes),
        )
    out.print(table)
    for line in lines(machine):
        out.print(line, soft_wrap=True)


def lines(machine: Machine) -> Iterator[str]:
    """Yield lines on shared caches and absent devices."""
    levels = [(cache.level, cache.nbytes, len(cache.cores)) for cache in machine.caches]
    for level, nbytes, core_count in dict.fromkeys(levels):
        times = levels.count((level, nbytes, core_count))
        yield f"Cache L{level}: {times} of {nbytes >> 10} KiB, each for {core_count} core{'s' * (core_count > 1)}"
    for group in machine.threads_of_one_core:
        yield f"Cores {_core_list(group)} are threads of one core and share its arithmetic"
    if len(machine.numa_nodes) > 1:
        for number, cores in machine.numa_nodes.items():
            yield f"NUMA node {number}: cores {_core_list(cores)}"
    for runtime, targets in machine.runtimes.items():
        yield f"{runtime}: {', '.join(targets)}"
    for kind, reason in machine.absent.items():
        yield f"Not found: {kind} ({reason})"


def _core_list(cores: Sequence[int]) -> str:
    return ",".join(map(str, cores))
