"""Device candidates: a remote device's servers, and its local stand-in."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.remote_address import Address
from pipeline.errors import DeviceLost
from pipeline.executor import devices
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.remote.candidate import DeviceCandidate, Loaded
from pipeline.remote.connection import Connection, ServerRefusal
from pipeline.remote.endpoint import RemoteSession, ServerEndpoint
from pipeline.remote.pool import Pool
from pipeline.remote.pool_device import PoolCandidate


@dataclass
class _Use:
    """A pool in use."""

    pool: Pool
    membership: contextlib.ExitStack
    users: int = 0


_uses: dict[Address, _Use] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def shared_pool(address: Address) -> Iterator[Pool]:
    """Yield an address's pool, shared by this process's workers.

    Raises `DeviceLost` if nobody can be asked for its members; `MissingExtra` if Zenoh would be, and is not installed.
    """
    with _lock:
        use = _uses.get(address)
        if use is None:
            use = _uses[address] = _open_pool(address)
        use.users += 1
    try:
        yield use.pool
    finally:
        with _lock:
            use.users -= 1
            is_last = not use.users
            if is_last:
                del _uses[address]
        if is_last:
            use.membership.close()


def _open_pool(address: Address) -> _Use:
    pool = Pool([ServerEndpoint(member) for member in address.members if member.scheme == "remote"])
    with contextlib.ExitStack() as stack:
        stack.callback(pool.close)
        if not address.members:
            from pipeline.remote.zenoh_members import follow_announcements

            stack.enter_context(follow_announcements(address, pool))
        elif address.members[0].tracker:
            from pipeline.remote.tracker_members import follow_tracker

            stack.enter_context(follow_tracker(address.members[0], pool))
        return _Use(pool, stack.pop_all())


RETRY_S = 0.05
"""Seconds between two attempts to reach a server while a frame waits."""

REST_S = 1.0
"""Seconds of pause after a server was given up. Meanwhile frames fail, or go to the alternative, at once."""
REST = 4
"""Pause as a multiple of the last attempt's time, where there is an alternative."""

Result = TypeVar("Result")


def make_candidate(address: Address, device: Device, stages: Loaded, *, is_only: bool) -> DeviceCandidate:
    """Return the candidate at an address, waited for if the only one."""
    if address.scheme == "pool":
        patience = address.patience if is_only else 0.0
        use_pool = functools.partial(shared_pool, address)
        return PoolCandidate(use_pool, stages, patience=patience, timeout=address.timeout)
    if address.scheme == "local":
        return _LocalAlternative(address, device, stages)
    return _ServerAlternative(address, stages, is_only=is_only)


def _begin_session(address: Address) -> RemoteSession:
    """Return a new session with the server at an address."""
    if address.scheme == "remote":
        return Connection(address)
    from pipeline.remote.rpc_device import RpcConnection

    return RpcConnection(address)


class _ServerAlternative(DeviceCandidate):
    """Server, with the conduct during its absence."""

    def __init__(self, address: Address, stages: Loaded, *, is_only: bool) -> None:
        # The list itself, which grows: stages that are loaded later are opened here with the next session.
        self._address, self._stages, self._is_only = address, stages, is_only
        self._connection: RemoteSession | None = None
        self._numbers: list[int] = []
        # Who is started together with the server may be the first to be ready.
        self._lost_at = time.monotonic()
        self._rests_until, self._last = 0.0, DeviceLost("")

    @property
    def session_address(self) -> str:
        return "" if self._connection is None else str(self._address)

    def prepare(self) -> None:
        self._connect()

    def run(self, program: int, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return self._call_session(lambda session: session.run(self._numbers[program], self._stages[program][0], inputs))

    def run_timed(self, program: int, inputs: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], float]:
        return self._call_session(
            lambda session: session.run_timed(self._numbers[program], self._stages[program][0], inputs)
        )

    def _call_session(self, work: Callable[[RemoteSession], Result]) -> Result:
        connection = self._connect()
        try:
            return work(connection)
        except DeviceLost:
            self._forget()
            raise

    def break_off(self) -> None:
        if (connection := self._connection) is not None:
            connection.break_off()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _forget(self) -> None:
        self.close()
        self._lost_at = time.monotonic()

    def _connect(self) -> RemoteSession:
        # Noticed before a frame is sent, so that a restart between two frames costs none.
        if self._connection is not None and not self._connection.usable():
            self._forget()
        while self._connection is None or len(self._numbers) < len(self._stages):
            self._try()
        return self._connection

    def _try(self) -> None:
        """Try to reach the server; return for a retry, or raise `DeviceLost`."""
        begin = time.monotonic()
        if begin < self._rests_until:
            raise DeviceLost(f"{self._last} (a moment ago)") from self._last
        try:
            self._begin()
        except DeviceLost as error:
            self.close()
            end = time.monotonic()
            # With an alternative nobody waits; nor for a server that has said no.
            if isinstance(error, ServerRefusal) or not self._is_only or end >= self._lost_at + self._address.patience:
                rest_s = REST_S if self._is_only else max(REST_S, REST * (end - begin))
                self._rests_until, self._last = end + rest_s, error
                raise
            time.sleep(RETRY_S)

    def _begin(self) -> None:
        if self._connection is None:
            self._numbers = []
            self._connection = _begin_session(self._address)
        # Only stages that were loaded since: with a new session these are all of them.
        for stage, code in self._stages[len(self._numbers) :]:
            self._numbers.append(self._connection.open(stage, code))


class _LocalAlternative(DeviceCandidate):
    """Local device, loaded on first use."""

    def __init__(self, address: Address, device: Device, stages: Loaded) -> None:
        # Not opened here: most never stand in, and would keep memory for nothing.
        self._runtime: DeviceRuntime = devices.create(Device(f"{device.name} ({address})", address.device))
        self._stages, self._programs = stages, list[Any]()
        self._is_open = False

    def thread_kind(self) -> Hashable:
        return self._runtime.thread_kind(())

    def prepare(self) -> None:
        if not self._is_open:
            self._runtime.open(())
            self._is_open = True
        for stage, code in self._stages[len(self._programs) :]:
            self._programs.append(self._runtime.load(stage, code))

    def run_timed(self, program: int, inputs: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], float]:
        self.prepare()
        runtime = self._runtime
        outputs, seconds = runtime.run_timed(self._programs[program], [runtime.copy_in(array) for array in inputs])
        return [runtime.copy_out(tensor) for tensor in outputs], seconds

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._runtime.close()
