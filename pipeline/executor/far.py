"""Far: devices of other machines, as they are measured: what they are, and how fast tensors get there and back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pipeline.board import Device
from pipeline.plans import StagePlan, TensorSpec
from pipeline.remote.address import Address, alternatives
from pipeline.remote.connection import Connection

ROUNDS = 7
SMALL = TensorSpec("small", (1,), "uint8")


def preferred(device: Device) -> Address:
    """Return the first of a device's addresses, which is the one that is measured."""
    return alternatives(device.address)[0]


def described(device: Device) -> Device:
    """Return the device with its target, which its server is asked for unless the board says it.

    Raises
    ------
    DeviceLost
        If the server cannot be reached.
    BuildError
        If nobody can be asked.
    """
    if device.target is not None:
        return device
    from pipeline.executor.devices import remote

    return replace(device, target=remote.target(device))


def machine(device: Device) -> str:
    """Return what tells a device's machine from others: its processor; for TVM's server, which tells nothing, where.

    Raises
    ------
    DeviceLost
        If the server cannot be reached.
    """
    where = preferred(device)
    if where.scheme != "remote":
        return str(where)
    with contextlib.closing(Connection(where)) as connection:
        return f"{connection.welcome.processor} ({len(connection.welcome.cores)} cores)"


def ways(device: Device, nbytes: int) -> tuple[float, float]:
    """Return the measured seconds that so many bytes take to a device, and back.

    Raises
    ------
    DeviceLost
        If the server cannot be reached.
    """
    where = preferred(device)
    if where.scheme == "rpc":
        from pipeline.executor.devices.rpc import RpcConnection

        with contextlib.closing(RpcConnection(where)) as board:
            return board.ways(nbytes)
    # A device that computes nothing gives back its inputs, from the first one on, as many as it has outputs.
    with contextlib.closing(Connection(replace(where, device="null"))) as connection:
        large = TensorSpec("large", (nbytes,), "uint8")
        there = _seconds(connection, StagePlan("there", "null", (SMALL, large), (SMALL,)))
        both = _seconds(connection, StagePlan("both", "null", (large,), (large,)))
    return there, max(both - there, 0.0)


def least(work: Callable[[], object]) -> float:
    """Return the fastest of a few times that some work takes: whatever else a machine does only adds."""
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def _seconds(connection: Connection, stage: StagePlan) -> float:
    program = connection.open(stage, None)
    arrays = [np.zeros(spec.shape, spec.dtype) for spec in stage.inputs]
    return least(lambda: connection.run(program, stage, arrays))
