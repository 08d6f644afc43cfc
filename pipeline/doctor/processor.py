"""Processor: instruction set, kind of core, cores online."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pipeline.core.board.board import Device
from pipeline.doctor.check import OK, WRONG, Check
from pipeline.doctor.machine import Machine
from pipeline.doctor.request import Request
from pipeline.executor import core_kinds, host_target

OTHER_BOARD = "soc-pipeline boards, and name the one that this machine is"
ONLINE = "echo 1 | sudo tee /sys/devices/system/cpu/cpu{}/online; take maxcpus= from the kernel's command line"


def examine(machine: Machine, request: Request) -> Iterator[Check]:
    """Compare the cores with those of the board's processors."""
    for device in request.devices:
        if device.capabilities.is_processor and device.target is not None:
            check = _kind(machine, device, device.target, request)
            yield check
            if check.is_fault:
                continue
            online = _core_numbers(machine.text("/sys/devices/system/cpu/online"))
            if online and (offline := sorted(set(device.cores) - online)):
                finding = f"cores {', '.join(map(str, offline))} are offline"
                yield Check("cores", WRONG, finding, ONLINE.format(offline[0]))


def _kind(machine: Machine, device: Device, target: Mapping[str, object], request: Request) -> Check:
    """Compare instruction set and kinds of cores, as far as Linux tells them."""
    expected = host_target.machine(str(target.get("mtriple", "")).partition("-")[0])
    if expected != host_target.machine(machine.architecture):
        finding = f"{request.name} is {expected}, this machine is {machine.architecture}"
        return Check("processor", WRONG, finding, OTHER_BOARD)
    kinds = {}
    for cores, keys in [(cluster.cores, cluster.target or {}) for cluster in device.clusters] or [(device.cores, {})]:
        kind = str(keys.get("mcpu", target.get("mcpu", "")))
        kinds[kind] = core_kinds.processor(cores, root=machine.root / "sys/devices/system")
    actual = ", ".join(dict.fromkeys(filter(None, kinds.values()))) or expected
    # A bundle says by its own flags what it needs.
    if request.bundle is None and any(kind and found and kind != found for kind, found in kinds.items()):
        return Check("processor", WRONG, f"{actual}; {request.name} has {', '.join(kinds)}", OTHER_BOARD)
    return Check("processor", OK, actual)


def _core_numbers(text: str) -> set[int]:
    """Return the numbers of a list such as ``0-3,5``."""
    parts = [part.partition("-") for part in text.split(",") if part]
    return {number for first, _, last in parts for number in range(int(first), int(last or first) + 1)}
