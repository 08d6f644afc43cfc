"""Link rates: bytes per second of copying cores and of transfers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipeline.core.board.board import Device, Link
from pipeline.executor import devices
from pipeline.measure import cost_cache, remote_rates
from pipeline.measure.cost_cache import CostCache, TimeRecord
from pipeline.measure.group_times import fastest_cores
from pipeline.measure.remote_rates import fastest_time
from pipeline.system.threads import run_in_thread

SMALL, LARGE = 1 << 12, 1 << 24
"""Bytes of the copied tensors: the time of the small one is the latency."""


def memory_rate(device: Device, cache: CostCache) -> float:
    """Return a CPU core's copying rate, reads and writes, in bytes per second."""
    key = cost_cache.key_of_memory(cost_cache.describe_processor(device), device.memory)
    # Each byte is read once and written once.
    return 2 * LARGE / _measure_once(key, cache, lambda: run_in_thread(lambda: _memory_seconds(device), "copying"))


def _memory_seconds(device: Device) -> float:
    runtime = devices.create(device)
    runtime.open(fastest_cores(device, 1))
    source, target = np.ones(LARGE // 8), np.zeros(LARGE // 8)
    seconds = fastest_time(lambda: np.copyto(target, source))
    runtime.close()
    return seconds


def measure_link(source: Device, target: Device, cache: CostCache) -> Link:
    """Measure the link between two devices' memories, slower direction.

    Tensors are copied as the scheduler does it: out of the one device, and into the other.
    """
    latency_s, large_s = (
        # A link has one rate for both directions: the slower one, so that plans do not promise too much.
        max(_link_seconds(*pair, nbytes, cache) for pair in ((source, target), (target, source)))
        for nbytes in (SMALL, LARGE)
    )
    # Where nothing is copied, as between two devices of the host, the clock's own grain remains.
    rate = (LARGE - SMALL) / max(large_s - latency_s, 1e-9)
    return Link((source.memory, target.memory), rate, latency_s, measured=True)


def _link_seconds(source: Device, target: Device, nbytes: int, cache: CostCache) -> float:
    transfer = {
        "from": cost_cache.describe_processor(source),
        "to": cost_cache.describe_processor(target),
        "bytes": nbytes,
    }
    key = cost_cache.key_of_memory(transfer, source.memory, target.memory)
    return _measure_once(key, cache, lambda: run_in_thread(lambda: _copy_seconds(source, target, nbytes), "copying"))


def measure_remote_link(host: Device, device: Device) -> Link:
    """Measure the link to a remote device's memory, slower direction.

    The link is measured by each call, and not cached: the network between two machines changes more often than they do.
    """
    latency_s, large_s = (max(remote_rates.time_transfers(device, nbytes)) for nbytes in (SMALL, LARGE))
    # Of the difference between two sizes, in which the latency cancels out.
    return Link(
        (host.memory, device.memory), (LARGE - SMALL) / max(large_s - latency_s, 1e-9), latency_s, measured=True
    )


def _copy_seconds(source: Device, target: Device, nbytes: int) -> float:
    sender, receiver = devices.create(source), devices.create(target)
    sender.open(source.cores[-1:])
    # A device without cores of the host is driven from the core that sends.
    receiver.open(target.cores[-1:] or source.cores[-1:])
    tensor = sender.copy_in(np.ones(nbytes // 4, np.float32))
    seconds = fastest_time(lambda: receiver.copy_in(sender.copy_out(tensor)))
    for runtime in (receiver, sender):
        runtime.close()
    return seconds


def _measure_once(key: str, cache: CostCache, measure: Callable[[], float]) -> float:
    record = cache.get(key)
    if record is None:
        record = TimeRecord(key, measure())
        cache.put(record)
    return record.seconds
