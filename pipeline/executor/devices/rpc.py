"""A device of a bare board that runs TVM's own RPC server.

It is slow: tensors travel at about 0.06 GB/s.  ``soc-pipeline serve`` is the better server where it can be installed.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.errors import BundleError, DeviceLost, RemoteError
from pipeline.executor.code import StageCode
from pipeline.plans import StagePlan
from pipeline.remote import package, tensors
from pipeline.remote.address import Address
from pipeline.remote.connection import why
from pipeline.remote.relay import Relay
from pipeline.tvm_access import tvm

SLOWEST = 5e6
"""Bytes per second that a link must reach, so that sending what is large is not taken for a server that hangs."""

WAYS = 3
"""How often copying is measured: a large tensor takes a while."""

LARGEST_ANSWER = 1 << 16
"""Bytes of a tracker's answer."""

_TRACKER_MAGIC = 0x2F271
_REQUEST, _SUCCESS = 4, 0


class _Program(NamedTuple):
    """A stage on the board, with its parameters there."""

    main: Any
    parameters: list[Any]
    machine: Any


class RpcConnection:
    """A session with TVM's RPC server, or with one that its tracker knows; used by one thread.

    Such a server has one session at a time, so a stage on it has no replicas.

    Parameters
    ----------
    address : Address

    Raises
    ------
    DeviceLost
        From every call, if the server cannot be reached, a call takes longer than the address's `timeout`, or the
        server is gone.  The connection is of no use then.
    """

    def __init__(self, address: Address) -> None:
        from tvm import rpc

        self.address = address
        self._programs: list[_Program] = []
        try:
            host, port, key = _from_tracker(address) if address.tracker else (address.host, address.port, address.key)
            self._relay = Relay(host, port, address.timeout)
        except OSError as error:
            raise DeviceLost(f"{address}: {why(error, address.timeout)}") from error
        try:
            with self._call(0, "it serves somebody else already, or hangs"):
                self._session = rpc.connect("127.0.0.1", self._relay.port, key)
                self._device = self._session.device(address.device, 0)
        except BaseException:
            self._relay.close()
            raise

    def open(self, stage: StagePlan, code: StageCode | None) -> int:
        """Send a stage, load it there, and return its number."""
        if code is None:
            raise DeviceLost(f"{self.address}: stage {stage.name!r} has no code; build the bundle for this device")
        packed = package.package(code)
        (library,) = packed.files[packed.stage.library.sha256]
        name = f"{packed.stage.library.sha256}.so"
        with self._call(packed.stage.library.nbytes + packed.stage.parameters.nbytes):
            self._session.upload(bytearray(library), name)
            machine = _machine(self._session.load_module(name), self._device)
            parameters = [tvm.runtime.tensor(array, self._device) for array in code.parameters.values()]
            self._programs.append(_Program(machine["main"], parameters, machine))
        return len(self._programs) - 1

    def run(self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run one frame through an opened stage.

        Raises
        ------
        RemoteError
            If the stage fails on it; the connection remains of use.
        """
        there = self._programs[program]
        nbytes = sum(array.nbytes for array in arrays) + sum(spec.nbytes for spec in stage.outputs)
        with self._call(nbytes):
            inputs = [tvm.runtime.tensor(tensors.contiguous(array), self._device) for array in arrays]
            made = there.main(*inputs, *there.parameters)
            return [tensor.numpy() for tensor in ([made] if isinstance(made, tvm.runtime.Tensor) else made)]

    def timed(self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], float]:
        """Run one frame as `run` does, and return the seconds that it takes on the board as well, by its own clock."""
        there = self._programs[program]
        made = self.run(program, stage, arrays)
        with self._call(sum(array.nbytes for array in arrays)):
            inputs = [tvm.runtime.tensor(tensors.contiguous(array), self._device) for array in arrays]
            once = there.machine.time_evaluator("main", self._device, number=1)
            return made, float(once(*inputs, *there.parameters).mean)

    def ways(self, nbytes: int) -> tuple[float, float]:
        """Return the measured seconds that so many bytes take to the board, and back."""
        array = np.zeros(nbytes, np.uint8)
        with self._call(2 * WAYS * nbytes):
            kept = tvm.runtime.tensor(array, self._device)
            times = [_times(kept, array) for _ in range(WAYS)]
        there, back = zip(*times, strict=True)
        return min(there), min(back)

    def usable(self) -> bool:
        """Whether the connection has not ended."""
        return not self._relay.ended

    def close(self) -> None:
        """End the session, so that the server is free for the next."""
        # Objects of the board are given back by calls, which a server that hangs must not hold up.
        with self._relay.limit(self.address.timeout):
            self._programs.clear()
            self._session = self._device = None
        self._relay.close()

    @contextlib.contextmanager
    def _call(self, nbytes: int, hint: str = "it hangs") -> Iterator[None]:
        limit = self.address.timeout + nbytes / SLOWEST
        try:
            with self._relay.limit(limit):
                yield
        except (tvm.error.InternalError, RuntimeError, ValueError, TypeError, AttributeError) as error:
            if isinstance(error, BundleError):
                raise
            said = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            if self._relay.expired:
                raise DeviceLost(f"{self.address}: no answer within {limit:.3g} s: {hint}") from error
            if self._relay.ended:
                raise DeviceLost(f"{self.address}: the server has closed the connection: {said}") from error
            raise RemoteError(f"{self.address}: {said}") from error


def _times(there: Any, array: np.ndarray) -> tuple[float, float]:
    begin = time.perf_counter()
    there.copyfrom(array)
    middle = time.perf_counter()
    there.numpy()
    return middle - begin, time.perf_counter() - middle


def _machine(module: Any, device: Any) -> Any:
    from tvm.runtime.vm import VirtualMachine

    return VirtualMachine(module, device)


def _from_tracker(address: Address) -> tuple[str, int, str]:
    """Ask TVM's tracker for a free server; while there is none it does not answer."""
    with socket.create_connection((address.host, address.port), timeout=address.timeout) as tracker:
        tracker.sendall(struct.pack("<i", _TRACKER_MAGIC))
        if tracker.recv(4, socket.MSG_WAITALL) != struct.pack("<i", _TRACKER_MAGIC):
            raise DeviceLost(f"{address}: there is no TVM tracker")
        request = json.dumps([_REQUEST, address.key, "", 1]).encode()
        tracker.sendall(struct.pack("<i", len(request)) + request)
        try:
            return _server(_answer(tracker))
        except TimeoutError:
            raise DeviceLost(f"{address}: the tracker has no free server within {address.timeout:g} s") from None
        except (ValueError, TypeError) as error:
            raise DeviceLost(f"{address}: the tracker's answer is no server: {error}") from None


def _server(answer: Any) -> tuple[str, int, str]:
    status, (host, port, key) = answer
    if status != _SUCCESS:
        raise ValueError(answer)
    return str(host), int(port), str(key)


def _answer(tracker: socket.socket) -> Any:
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + _length(data):
        if not (came := tracker.recv(LARGEST_ANSWER)):
            raise ValueError("it has closed the connection")
        data += came
    return json.loads(data[4:])


def _length(data: bytearray) -> int:
    (length,) = struct.unpack("<i", data[:4])
    if not 0 < length < LARGEST_ANSWER:
        raise ValueError(f"{length} bytes")
    return int(length)
