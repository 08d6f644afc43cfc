"""Measured copying: how many bytes per second a core moves, and how fast tensors get from one memory to another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.board import Device, Link
from pipeline.executor import cost_cache, devices, far
from pipeline.executor.apart import apart
from pipeline.executor.cost_cache import CostCache, Record
from pipeline.executor.far import least
from pipeline.executor.profile import fastest_cores

SMALL, LARGE = 1 << 12, 1 << 24
"""Bytes of the tensors that are copied: the time of the small one is the latency."""


def memory_rate(device: Device, cache: CostCache) -> float:
    """Return the bytes per second that one core of a CPU reads and writes while it copies."""
    key = cost_cache.key_of_memory(cost_cache.place(device), device.memory)
    return 2 * LARGE / _kept(key, cache, lambda: apart(lambda: _memory_seconds(device), "copying"))


def _memory_seconds(device: Device) -> float:
    runtime = devices.create(device)
    runtime.open(fastest_cores(device, 1))
    source, target = np.ones(LARGE // 8), np.zeros(LARGE // 8)
    seconds = least(lambda: np.copyto(target, source))
    runtime.close()
    return seconds


def link(source: Device, target: Device, cache: CostCache) -> Link:
    """Return the measured link between the memories of two devices, in its slower direction.

    Tensors are copied as the scheduler does it: out of the one device, and into the other.
    """
    small, large = (
        max(_link_seconds(*pair, nbytes, cache) for pair in _both(source, target)) for nbytes in (SMALL, LARGE)
    )
    # Where nothing is copied, as between two devices of the host, the clock's own grain remains.
    rate = (LARGE - SMALL) / max(large - small, 1e-9)
    return Link((source.memory, target.memory), rate, small, measured=True)


def _both(source: Device, target: Device) -> tuple[tuple[Device, Device], tuple[Device, Device]]:
    return (source, target), (target, source)


def _link_seconds(source: Device, target: Device, nbytes: int, cache: CostCache) -> float:
    where = {"from": cost_cache.place(source), "to": cost_cache.place(target), "bytes": nbytes}
    key = cost_cache.key_of_memory(where, source.memory, target.memory)
    return _kept(key, cache, lambda: apart(lambda: _copy_seconds(source, target, nbytes), "copying"))


def far_link(own: Device, device: Device) -> Link:
    """Return the measured link from this machine's memory to that of a device of another one, in its slower direction.

    It is measured each time: the way there is not told by what the other machine is.
    """
    small, large = (max(far.ways(device, nbytes)) for nbytes in (SMALL, LARGE))
    return Link((own.memory, device.memory), (LARGE - SMALL) / max(large - small, 1e-9), small, measured=True)


def _copy_seconds(source: Device, target: Device, nbytes: int) -> float:
    one, other = devices.create(source), devices.create(target)
    one.open(source.cores[-1:])
    other.open(target.cores[-1:] or source.cores[-1:])
    tensor = one.copy_in(np.ones(nbytes // 4, np.float32))
    seconds = least(lambda: other.copy_in(one.copy_out(tensor)))
    for runtime in (other, one):
        runtime.close()
    return seconds


def _kept(key: str, cache: CostCache, measure: Callable[[], float]) -> float:
    found = cache.get(key)
    if found is None:
        found = Record(key, measure())
        cache.put(found)
    return found.seconds
