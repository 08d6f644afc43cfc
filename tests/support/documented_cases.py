"""Random boards and graphs of 3 to 6 groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipeline.core.board.board import Board, Cluster, Device, Link
from pipeline.core.board.device import Accuracy
from tests.support.small_cases import SmallCase


def random_documented_case(seed: int) -> SmallCase:
    """Return a graph on two kinds of cores, with or without accelerators; some run only some of the groups."""
    random = np.random.default_rng(seed)
    count = int(random.integers(3, 7))
    reads = _reads(random, count)
    memory_rate = float(random.choice([0.0, 1e9, 4e9]))
    watts = [float(value) for value in random.uniform(1, 5, 3)]
    big, little = int(random.integers(1, 3)), int(random.integers(0, 3))
    clusters = (Cluster("big", tuple(range(big))), Cluster("little", tuple(range(big, big + little)), speed=0.4))
    cpu = Device("cpu", clusters=clusters, bytes_per_s=8e9, memory_bytes_per_s=memory_rate, watts_busy=watts[0])
    if not little:
        cpu = Device(
            "cpu", cores=tuple(range(big)), bytes_per_s=8e9, memory_bytes_per_s=memory_rate, watts_busy=watts[0]
        )
    devices, links = [cpu], list[Link]()
    if random.random() < 0.7:
        at_once = int(random.integers(1, 3))
        rate = float(random.choice([0.0, 2e9]))
        devices.append(
            Device("npu", "vta", memory="npu", at_once=at_once, memory_bytes_per_s=rate, watts_busy=watts[1])
        )
        links.append(Link(("host", "npu"), float(random.choice([1e8, 5e8, 2e9])), float(random.choice([1e-5, 2e-4]))))
    if random.random() < 0.4:
        devices.append(Device("gpu", "cuda", memory="gpu", bytes_per_s=2e10, watts_busy=watts[2]))
        links.append(Link(("host", "gpu"), 2e9, 5e-5, shared=bool(random.integers(2))))
    scale = 10 ** random.uniform(-3.7, -2)
    seconds = {device.name: (scale * random.lognormal(0, 0.6, count)).tolist() for device in devices}
    for device in devices[1:]:
        speed = random.uniform(0.7, 5)
        runs = random.random(count) < random.choice([0.6, 1.0])
        seconds[device.name] = [
            each / speed if able else float("inf") for each, able in zip(seconds[device.name], runs, strict=True)
        ]
    sizes = [int(size) for size in 10 ** random.uniform(3, 6, count + 1)]
    devices = [replace(device, accuracy=_accuracy(random)) for device in devices]
    return SmallCase(reads, sizes, Board("board", tuple(devices), tuple(links)), seconds)


def _accuracy(random: np.random.Generator) -> Accuracy | None:
    """Return the accuracy of a device's rates, of two in three."""
    low, high = random.uniform(0.6, 1.0), random.uniform(1.0, 1.5)
    return Accuracy(10, float(low), float(high)) if random.random() < 2 / 3 else None


def _reads(random: np.random.Generator, count: int) -> list[list[int]]:
    if random.random() < 0.5:
        return [[], *([group] for group in range(count - 1))]
    reads: list[list[int]] = [[]]
    for group in range(1, count - 1):
        reads.append(sorted({int(each) for each in random.integers(0, group, size=2)}))
    unread = set(range(count - 1)) - {each for group in reads for each in group}
    return [*reads, sorted(unread)]
