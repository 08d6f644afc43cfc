"""Remote rates: measured remote devices, and their transfer times."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.core.remote_address import Address, preferred
from pipeline.executor import devices
from pipeline.remote.connection import Connection

ROUNDS = 7
"""Timings of a transfer: few, since the fastest time counts and is soon met."""

SMALL = TensorSpec("small", (1,), "uint8")
"""Tensor of negligible bytes, to time its message alone."""


def preferred_address(device: Device) -> Address:
    """Return a device's first address, the measured one."""
    return preferred(device.address)


def complete_target(device: Device) -> Device:
    """Return the device with a target, from its server if unspecified.

    Raises `DeviceLost` if the server cannot be reached; `BuildError` if nobody can be asked.
    """
    if device.target is not None:
        return device
    return replace(device, target=devices.ask_target(device))


def describe_machine(device: Device) -> str:
    """Return a device's processor, or a TVM server's address, or raise `DeviceLost`."""
    address = preferred_address(device)
    if address.scheme != "remote":
        return str(address)
    with contextlib.closing(Connection(address)) as connection:
        return f"{connection.welcome.processor} ({len(connection.welcome.cores)} cores)"


def time_transfers(device: Device, nbytes: int) -> tuple[float, float]:
    """Return the measured seconds of bytes to a device and back, or raise `DeviceLost`."""
    address = preferred_address(device)
    if address.scheme == "rpc":
        from pipeline.remote.rpc_device import RpcConnection

        with contextlib.closing(RpcConnection(address)) as board:
            return board.time_transfers(nbytes)
    # A device that computes nothing gives back its inputs, from the first one on, as many as it has outputs.
    with contextlib.closing(Connection(replace(address, device="null"))) as connection:
        large = TensorSpec("large", (nbytes,), "uint8")
        # One byte comes back, so that only the way there counts.
        upload_s = _seconds(connection, StagePlan("there", "null", (SMALL, large), (SMALL,)))
        both_ways_s = _seconds(connection, StagePlan("both", "null", (large,), (large,)))
    # Of two measurements, whose noise may be more than a fast way back takes.
    return upload_s, max(both_ways_s - upload_s, 0.0)


def fastest_time(work: Callable[[], object]) -> float:
    """Return the fastest of a few runs: disturbances only add."""
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def _seconds(connection: Connection, stage: StagePlan) -> float:
    program = connection.open(stage, None)
    arrays = [np.zeros(spec.shape, spec.dtype) for spec in stage.inputs]
    return fastest_time(lambda: connection.run(program, stage, arrays))
