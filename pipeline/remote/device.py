"""A device on another machine, served there by ``soc-pipeline serve`` or by TVM's RPC server."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from pipeline.core import remote_address
from pipeline.core.board import Device
from pipeline.core.plan import StagePlan
from pipeline.core.remote_address import Address
from pipeline.errors import BoardError, BuildError, DeviceLost
from pipeline.executor import devices
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.executor.devices.null import NullRuntime
from pipeline.remote.connection import Connection, ServerRefusal

RETRY_S = 0.05
"""Between two attempts to reach a server while a frame waits for it."""

REST_S, REST = 1.0, 4
"""A server that has been given up is left alone for so many seconds; where there is an alternative, for so many times
as long as the last attempt took; frames fail, or go to the alternative, at once meanwhile."""

Loaded = Sequence[tuple[StagePlan, Any]]
Result = TypeVar("Result")


class RemoteRuntime(NullRuntime):
    """Sends frames to a server and brings back the results; its tensors are arrays of this machine.

    A run is over when the results are here.  To send a frame while another one is computed and the results of a third
    come back, a stage has several replicas on the device: the server computes one at a time.  TVM's server has one
    session at a time, which stages of one process share, so replicas gain nothing there.

    The device's address may have alternatives, separated by spaces, in order of preference.  A frame whose server is
    lost goes to the next one.  Without any it fails with `DeviceLost`, later frames wait for the server as long as the
    address's `patience` says, and go on as soon as it is back: the session is begun again, and files that the server
    does not have any more are sent again.
    """

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        addresses = remote_address.alternatives(device.address)
        if not addresses:
            raise BoardError(
                f"device {device.name!r} has no address; give it one like {remote_address.EXAMPLES['remote']}"
            )
        # To wait for the server, to greet it, and to load a stage there.
        self.opening_s += sum(each.patience + 2 * each.timeout for each in addresses)
        self._stages: list[tuple[StagePlan, Any]] = []
        self._candidates: list[RemotePlace] = [
            _place_at(address, device, self._stages, is_only=len(addresses) == 1) for address in addresses
        ]

    @staticmethod
    def ask_target(device: Device) -> dict[str, object]:
        """Ask a device's server for the target of its processor, to build for it.

        Raises
        ------
        BuildError
            If nobody can be asked.
        """
        address = remote_address.alternatives(device.address)[0]
        if address.scheme != "remote":
            raise BuildError(
                f"device {device.name!r} at {address} cannot be asked for its target; write it into the board"
            )
        with contextlib.closing(Connection(address)) as connection:
            return connection.target()

    def thread_kind(self, cores: Sequence[int]) -> Hashable:  # noqa: ARG002 - they are those of the other machine
        """Return the kind of the device of this machine that may stand in, if there is one."""
        kinds = [kind for candidate in self._candidates if (kind := candidate.thread_kind()) is not None]
        return kinds[0] if kinds else None

    def open(self, cores: Sequence[int]) -> None:
        """Let the thread go where the system likes: the stage's cores are those of the other machine."""

    @property
    def sessions(self) -> tuple[str, ...]:
        """The addresses of the servers with which there is a session now."""
        return tuple(address for candidate in self._candidates if (address := candidate.session_address))

    def load(self, stage: StagePlan, code: Any) -> int:
        """Let a server load the stage, or the first alternative that there is."""
        self._stages.append((stage, code))
        self._first(lambda candidate: candidate.prepare())
        return len(self._stages) - 1

    def run(self, program: int, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Run one frame there."""
        return self._first(lambda candidate: candidate.run(program, inputs))

    def run_timed(self, program: int, inputs: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], float]:
        """Run one frame there, and return the seconds that it took there: the way there and back is none of them."""
        return self._first(lambda candidate: candidate.run_timed(program, inputs))

    def break_off(self) -> None:
        """End the connections; what waits for a server fails."""
        for candidate in self._candidates:
            candidate.break_off()

    def close(self) -> None:
        """End the sessions."""
        for candidate in self._candidates:
            candidate.close()

    def _first(self, work: Callable[[RemotePlace], Result]) -> Result:
        """Return the result of `work` for the first candidate that is not lost."""
        errors: list[DeviceLost] = []
        for candidate in self._candidates:
            try:
                return work(candidate)
            except DeviceLost as error:  # noqa: PERF203 - there are few
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        raise DeviceLost("; ".join(map(str, errors))) from errors[0]


class RemotePlace(ABC):
    """Device elsewhere, or its stand-in here, where frames of one stage can be computed."""

    def thread_kind(self) -> Hashable:
        """Return the kind of threads that it may use; see `DeviceRuntime.thread_kind`."""
        return None

    @property
    def session_address(self) -> str:
        """The address of the server with which it has a session; empty if there is none."""
        return ""

    def break_off(self) -> None:  # noqa: B027 - a device of this machine cannot be interrupted
        """End a call that hangs in another thread."""

    @abstractmethod
    def prepare(self) -> None:
        """Load all stages that the runtime has, or raise `DeviceLost`."""

    @abstractmethod
    def run(self, program: int, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Run one frame through a stage, or raise `DeviceLost`."""

    @abstractmethod
    def run_timed(self, program: int, inputs: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], float]:
        """Run one frame, and return the seconds that the device took as well, or raise `DeviceLost`."""

    @abstractmethod
    def close(self) -> None:
        """Give it back."""


def _place_at(address: Address, device: Device, stages: Loaded, *, is_only: bool) -> RemotePlace:
    if address.scheme == "local":
        return _LocalPlace(address, device, stages)
    return _ServerPlace(address, stages, is_only=is_only)


def _begin_session(address: Address) -> RemoteSession:
    """Return a new session with the server at an address."""
    if address.scheme == "remote":
        return Connection(address)
    from pipeline.remote.rpc_device import RpcConnection

    return RpcConnection(address)


class RemoteSession(Protocol):
    """Calls of both kinds of connection; each raises `DeviceLost` when the server is lost."""

    def open(self, stage: StagePlan, code: Any) -> int:
        """Let the server load a stage, and return its number."""

    def run(self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Run one frame through an opened stage."""

    def run_timed(
        self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]
    ) -> tuple[Sequence[np.ndarray], float]:
        """Run one frame, and return the seconds that the board's device took as well."""

    def usable(self) -> bool:
        """Return True while the server is there, as far as this machine knows."""

    def break_off(self) -> None:
        """End a call that hangs in another thread."""

    def close(self) -> None:
        """End the session."""


class _ServerPlace(RemotePlace):
    """A server, and what is to be done while it is away."""

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
        if self._connection is not None and not self._connection.usable():
            self._forget()
        while self._connection is None or len(self._numbers) < len(self._stages):
            self._try()
        return self._connection

    def _try(self) -> None:
        """Try to reach the server; return to try again, or raise `DeviceLost` if that is not worth waiting for."""
        begin = time.monotonic()
        if begin < self._rests_until:
            raise DeviceLost(f"{self._last} (a moment ago)") from self._last
        try:
            self._begin()
        except DeviceLost as error:
            self.close()
            end = time.monotonic()
            if isinstance(error, ServerRefusal) or not self._is_only or end >= self._lost_at + self._address.patience:
                rest_s = REST_S if self._is_only else max(REST_S, REST * (end - begin))
                self._rests_until, self._last = end + rest_s, error
                raise
            time.sleep(RETRY_S)

    def _begin(self) -> None:
        if self._connection is None:
            self._numbers = []
            self._connection = _begin_session(self._address)
        for stage, code in self._stages[len(self._numbers) :]:
            self._numbers.append(self._connection.open(stage, code))


class _LocalPlace(RemotePlace):
    """A device of this machine, loaded when it is first needed."""

    def __init__(self, address: Address, device: Device, stages: Loaded) -> None:
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

    def run(self, program: int, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return self.run_timed(program, inputs)[0]

    def run_timed(self, program: int, inputs: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], float]:
        self.prepare()
        runtime = self._runtime
        outputs, seconds = runtime.run_timed(self._programs[program], [runtime.copy_in(array) for array in inputs])
        return [runtime.copy_out(tensor) for tensor in outputs], seconds

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._runtime.close()
