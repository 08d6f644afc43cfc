"""A device on another machine, served there by ``soc-pipeline serve`` or by TVM's RPC server."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from pipeline.board import Device
from pipeline.errors import BoardError, BuildError, DeviceLost
from pipeline.executor import devices
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.executor.devices.null import NullRuntime
from pipeline.plans import StagePlan
from pipeline.remote import address
from pipeline.remote.address import Address
from pipeline.remote.connection import Connection, Refused

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
    session at a time, and so no replicas.

    The device's address may have alternatives, separated by spaces, in order of preference.  A frame whose server is
    lost goes to the next one.  Without any it fails with `DeviceLost`, later frames wait for the server as long as the
    address's `patience` says, and go on as soon as it is back: the session is begun again, and files that the server
    does not have any more are sent again.
    """

    occupies_cores = False

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        found = address.alternatives(device.address)
        if not found:
            raise BoardError(f"device {device.name!r} has no address; give it one like {address.EXAMPLES['remote']}")
        self._stages: list[tuple[StagePlan, Any]] = []
        self._places: list[Place] = [_place(each, device, self._stages, alone=len(found) == 1) for each in found]

    def open(self, cores: Sequence[int]) -> None:
        """Let the thread go where the system likes: the stage's cores are those of the other machine."""

    def load(self, stage: StagePlan, code: Any) -> int:
        """Let a server load the stage, or the first alternative that there is."""
        self._stages.append((stage, code))
        self._first(lambda place: place.prepare())
        return len(self._stages) - 1

    def run(self, program: int, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Run one frame there."""
        return self._first(lambda place: place.run(program, inputs))

    def timed(self, program: int, inputs: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], float]:
        """Run one frame there, and return the seconds that it took there: the way there and back is none of them."""
        return self._first(lambda place: place.timed(program, inputs))

    def close(self) -> None:
        """End the sessions."""
        for place in self._places:
            place.close()

    def _first(self, work: Callable[[Place], Result]) -> Result:
        """Return what `work` returns for the first place that is not lost."""
        lost: list[DeviceLost] = []
        for place in self._places:
            try:
                return work(place)
            except DeviceLost as error:  # noqa: PERF203 - there are few
                lost.append(error)
        if len(lost) == 1:
            raise lost[0]
        raise DeviceLost("; ".join(map(str, lost))) from lost[0]


def target(device: Device) -> dict[str, object]:
    """Ask a device's server for the target of its processor, to build for it.

    Raises
    ------
    BuildError
        If nobody can be asked.
    """
    where = address.alternatives(device.address)[0]
    if where.scheme != "remote":
        raise BuildError(f"device {device.name!r} at {where} cannot be asked for its target; write it into the board")
    with contextlib.closing(Connection(where)) as connection:
        return connection.target()


class Place(ABC):
    """Where frames of one stage can be computed."""

    @abstractmethod
    def prepare(self) -> None:
        """Load all stages that the runtime has, or raise `DeviceLost`."""

    @abstractmethod
    def run(self, program: int, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Run one frame through a stage, or raise `DeviceLost`."""

    @abstractmethod
    def timed(self, program: int, inputs: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], float]:
        """Run one frame, and return the seconds that the device took as well, or raise `DeviceLost`."""

    @abstractmethod
    def close(self) -> None:
        """Give it back."""


def _place(where: Address, device: Device, stages: Loaded, *, alone: bool) -> Place:
    if where.scheme == "local":
        return _Here(where, device, stages)
    return _There(where, stages, alone=alone)


def _begun(where: Address) -> Session:
    """Return a new session with the server at an address."""
    if where.scheme == "remote":
        return Connection(where)
    from pipeline.executor.devices.rpc import RpcConnection

    return RpcConnection(where)


class Session(Protocol):
    """What both kinds of connection have in common; every call raises `DeviceLost` when the server is lost."""

    def open(self, stage: StagePlan, code: Any) -> int:
        """Let the server load a stage, and return its number."""

    def run(self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Run one frame through an opened stage."""

    def timed(self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], float]:
        """Run one frame, and return the seconds that the board's device took as well."""

    def usable(self) -> bool:
        """Whether the server is still there, as far as this machine knows."""

    def close(self) -> None:
        """End the session."""


class _There(Place):
    """A server, and what is to be done while it is away."""

    def __init__(self, where: Address, stages: Loaded, *, alone: bool) -> None:
        self._where, self._stages, self._alone = where, stages, alone
        self._connection: Session | None = None
        self._numbers: list[int] = []
        # Who is started together with the server may be the first to be ready.
        self._lost_at = time.monotonic()
        self._rests_until, self._last = 0.0, DeviceLost("")

    def prepare(self) -> None:
        self._connected()

    def run(self, program: int, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return self._with(lambda session: session.run(self._numbers[program], self._stages[program][0], inputs))

    def timed(self, program: int, inputs: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], float]:
        return self._with(lambda session: session.timed(self._numbers[program], self._stages[program][0], inputs))

    def _with(self, work: Callable[[Session], Result]) -> Result:
        connection = self._connected()
        try:
            return work(connection)
        except DeviceLost:
            self._forget()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _forget(self) -> None:
        self.close()
        self._lost_at = time.monotonic()

    def _connected(self) -> Session:
        if self._connection is not None and not self._connection.usable():
            self._forget()
        while self._connection is None or len(self._numbers) < len(self._stages):
            self._try()
        return self._connection

    def _try(self) -> None:
        """Try to reach the server; return to try again, or raise `DeviceLost` if that is not worth waiting for."""
        started = time.monotonic()
        if started < self._rests_until:
            raise DeviceLost(f"{self._last} (a moment ago)") from self._last
        try:
            self._begin()
        except DeviceLost as error:
            self.close()
            now = time.monotonic()
            if isinstance(error, Refused) or not self._alone or now >= self._lost_at + self._where.patience:
                rest = REST_S if self._alone else max(REST_S, REST * (now - started))
                self._rests_until, self._last = now + rest, error
                raise
            time.sleep(RETRY_S)

    def _begin(self) -> None:
        if self._connection is None:
            self._numbers = []
            self._connection = _begun(self._where)
        for stage, code in self._stages[len(self._numbers) :]:
            self._numbers.append(self._connection.open(stage, code))


class _Here(Place):
    """A device of this machine, loaded when it is first needed."""

    def __init__(self, where: Address, device: Device, stages: Loaded) -> None:
        self._runtime: DeviceRuntime = devices.create(Device(f"{device.name} ({where})", where.device))
        self._stages, self._programs = stages, list[Any]()
        self._opened = False

    def prepare(self) -> None:
        if not self._opened:
            self._runtime.open(())
            self._opened = True
        for stage, code in self._stages[len(self._programs) :]:
            self._programs.append(self._runtime.load(stage, code))

    def run(self, program: int, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return self.timed(program, inputs)[0]

    def timed(self, program: int, inputs: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], float]:
        self.prepare()
        runtime = self._runtime
        made, seconds = runtime.timed(self._programs[program], [runtime.copy_in(array) for array in inputs])
        return [runtime.copy_out(tensor) for tensor in made], seconds

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._runtime.close()
