"""RPC device: a bare board with TVM's own RPC server.

Such a server is slow: tensors travel at about 0.06 GB/s.  ``soc-pipeline serve`` is the better server where it can be
installed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.core.plan.plan import StagePlan
from pipeline.core.remote_address import Address
from pipeline.errors import DeviceLost
from pipeline.executor.stage_code import StageCode
from pipeline.remote import rpc_session, stage_package, tensors
from pipeline.tvm.access import tvm

ROUNDS = 3
"""Measurements of copying: a large tensor takes a while."""


class RpcStage(NamedTuple):
    """A stage on the board, with its parameters there."""

    main: Any
    parameters: list[Any]
    machine: Any


class RpcConnection:
    """One stage's share of an RPC session, direct or by tracker, for one thread.

    Such a server has one session at a time: stages of this process with the same address share it, and their calls take
    turns.  So the stages of a new bundle can be loaded while those of the old one still have frames.  Of a tracker's
    pool, each stage has a server of its own as long as there are free ones: one whose server was lost shares another
    stage's, until there is a free one again. Raises `DeviceLost` if the server cannot be reached, a call takes longer
    than the address's `timeout`, or the server is gone. The connection is of no use then.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._programs: list[RpcStage] = []
        self._session = rpc_session.join(address)

    def open(self, stage: StagePlan, code: StageCode | None) -> int:
        """Send and load a stage; return its number."""
        # TVM's server can only load a library; it has no devices that compute nothing.
        if code is None:
            raise DeviceLost(f"{self.address}: stage {stage.name!r} has no code; build the bundle for this device")
        package = stage_package.pack_stage(code)
        (library,) = package.files[package.stage.library.sha256]
        # By checksum: replicas that share the session load one file, see `RpcSession.module`.
        name, session = f"{package.stage.library.sha256}.so", self._session
        with session.call(package.stage.library.nbytes + package.stage.parameters.nbytes):
            machine = _machine(session.module(name, library), session.device)
            parameters = [tvm.runtime.tensor(array, session.device) for array in code.parameters.values()]
            self._programs.append(RpcStage(machine["main"], parameters, machine))
        return len(self._programs) - 1

    def run(self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run one frame through an opened stage.

        Raises `RemoteError` if the stage fails on it; the connection remains of use.
        """
        stage_program = self._programs[program]
        nbytes = sum(array.nbytes for array in arrays) + sum(spec.nbytes for spec in stage.outputs)
        with self._session.call(nbytes):
            return self._run(stage_program, arrays)

    def run_timed(self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], float]:
        """Run one frame like `run`, with the board's seconds."""
        stage_program = self._programs[program]
        outputs = self.run(program, stage, arrays)
        # Once more, since the board's clock is only read around runs of its own; measuring is not for frames that
        # stream.
        with self._session.call(sum(array.nbytes for array in arrays)):
            return outputs, self._seconds(stage_program, arrays)

    def time_transfers(self, nbytes: int) -> tuple[float, float]:
        """Return the measured seconds of bytes to and from the board."""
        array = np.zeros(nbytes, np.uint8)
        with self._session.call(2 * ROUNDS * nbytes):
            sending, receiving = zip(*_times(self._session.device, array), strict=True)
        return min(sending), min(receiving)

    def usable(self) -> bool:
        """Return False after the end, or when an unshared server is free."""
        return not (self._session.ended or rpc_session.has_better(self._session))

    def break_off(self) -> None:
        """End the session, and a hanging call in another thread."""
        self._session.break_off()

    def close(self) -> None:
        """Release the stage; the last one ends the session."""
        # Objects of the board are given back by calls, which a server that hangs must not hold up.
        with self._session.turn():
            self._programs.clear()
        # After the objects: the last one to leave ends the session that they are given back through.
        rpc_session.leave(self._session)

    # Tensors of the board are given back by calls, too: they must be gone before the turn is over, and its time limit.

    def _run(self, stage_program: RpcStage, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs = stage_program.main(*self._send(arrays), *stage_program.parameters)
        return [tensor.numpy() for tensor in ([outputs] if isinstance(outputs, tvm.runtime.Tensor) else outputs)]

    def _seconds(self, stage_program: RpcStage, arrays: Sequence[np.ndarray]) -> float:
        evaluator = stage_program.machine.time_evaluator("main", self._session.device, number=1)
        return float(evaluator(*self._send(arrays), *stage_program.parameters).mean)

    def _send(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        return [tvm.runtime.tensor(tensors.contiguous(array), self._session.device) for array in arrays]


def _times(device: Any, array: np.ndarray) -> list[tuple[float, float]]:
    """Return the seconds there and back, several times."""
    tensor, times = tvm.runtime.tensor(array, device), []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        tensor.copyfrom(array)
        middle = time.perf_counter()
        tensor.numpy()
        times.append((middle - begin, time.perf_counter() - middle))
    return times


def _machine(module: Any, device: Any) -> Any:
    from tvm.runtime.vm import VirtualMachine

    return VirtualMachine(module, device)
