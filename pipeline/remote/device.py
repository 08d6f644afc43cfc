"""Remote device, served by ``soc-pipeline serve`` or TVM's RPC server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from pipeline.core import remote_address
from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import BoardError, BuildError, DeviceLost
from pipeline.executor.devices.null import NullRuntime
from pipeline.remote.candidate import DeviceCandidate
from pipeline.remote.connection import Connection
from pipeline.remote.device_candidates import make_candidate

Result = TypeVar("Result")


class RemoteRuntime(NullRuntime):
    """Sends frames to a server; its tensors are local arrays.

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
        self.opening_s += sum(address.patience + 2 * address.timeout for address in addresses)
        # Shared with the candidates: one that is reached for the first time while frames run has to load all of them.
        self._stages: list[tuple[StagePlan, Any]] = []
        self._candidates: list[DeviceCandidate] = [
            make_candidate(address, device, self._stages, is_only=len(addresses) == 1) for address in addresses
        ]

    @staticmethod
    def ask_target(device: Device) -> dict[str, object]:
        """Ask a device's server for its processor's target, for builds, or raise `BuildError`."""
        address = remote_address.preferred(device.address)
        if address.scheme != "remote":
            raise BuildError(
                f"device {device.name!r} at {address} cannot be asked for its target; write it into the board"
            )
        with contextlib.closing(Connection(address)) as connection:
            return connection.target()

    def thread_kind(self, cores: Sequence[int]) -> Hashable:  # noqa: ARG002 - they are those of the other machine
        """Return the thread kind of a local stand-in, if there is one."""
        # Sessions leave nothing in a thread; a stand-in of this machine may.
        kinds = [kind for candidate in self._candidates if (kind := candidate.thread_kind()) is not None]
        return kinds[0] if kinds else None

    def open(self, cores: Sequence[int]) -> None:
        """Leave the thread unpinned: the stage's cores are the server's."""

    @property
    def sessions(self) -> tuple[str, ...]:
        """Addresses of servers with an open session."""
        return tuple(address for candidate in self._candidates if (address := candidate.session_address))

    def load(self, stage: StagePlan, code: Any) -> int:
        """Load the stage on a server or the first alternative."""
        self._stages.append((stage, code))
        self._first(lambda candidate: candidate.prepare())
        return len(self._stages) - 1

    def run(self, program: int, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Run one frame there."""
        return self._first(lambda candidate: candidate.run(program, inputs))

    def run_timed(self, program: int, inputs: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], float]:
        """Run one frame; return the remote seconds without transfers."""
        return self._first(lambda candidate: candidate.run_timed(program, inputs))

    def break_off(self) -> None:
        """Close the connections; waiting calls fail."""
        for candidate in self._candidates:
            candidate.break_off()

    def close(self) -> None:
        """End the sessions."""
        for candidate in self._candidates:
            candidate.close()

    def _first(self, work: Callable[[DeviceCandidate], Result]) -> Result:
        """Return `work` of the first candidate not lost."""
        # The preferred server is tried first for each frame; while it rests, that costs nothing.
        errors: list[DeviceLost] = []
        for candidate in self._candidates:
            try:
                return work(candidate)
            except DeviceLost as error:  # noqa: PERF203 - there are few
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        raise DeviceLost("; ".join(map(str, errors))) from errors[0]
