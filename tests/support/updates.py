"""Updates in tests: versions that are good and bad, frames that come all the time, and the end of judgements."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import Self

from pipeline.core.board.board import Board, Device
from pipeline.core.board.device_kinds import DeviceKind
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor.bundle import Bundle
from pipeline.executor.devices.simulated import SimulatedRuntime
from pipeline.scheduler import Pipeline
from pipeline.workflow.updates import Updater
from tests.support.device_kinds import added_kind

LIMIT = 60.0
SECONDS = 2e-3
X, Y = TensorSpec("x", (4,)), TensorSpec("y", (4,))


class FailingRuntime(SimulatedRuntime):
    """Fails on every frame."""

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        raise ValueError("a fault of this version")


class DoublingRuntime(SimulatedRuntime):
    """Returns twice its inputs."""

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        return [2 * array for array in super().run(program, inputs)]


class CrashingRuntime(SimulatedRuntime):
    """Ends the process on the first frame."""

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        os.abort()


@contextmanager
def registered(name: str, runtime: type[SimulatedRuntime]) -> Iterator[None]:
    """Have a kind of device."""
    adapter = f"{runtime.__module__}:{runtime.__qualname__}"
    with added_kind(DeviceKind(name, adapter, computes=False, occupies_cores=False)):
        yield


def bundle(seconds: float = SECONDS, kind: str = "simulated", spec: TensorSpec = X) -> Bundle:
    board = Board("b", (Device("d", kind),))
    stage = StagePlan("s", "d", (spec,), (replace(spec, name="y"),), seconds=seconds)
    return Bundle(Plan("m", "", board, stage.inputs, stage.outputs, (stage,)), [None])


class Feeder:
    """Frames that come all the time, as from a camera."""

    def __init__(self, running: Pipeline, first: int = 0) -> None:
        self._running, self._first, self._ending = running, first, threading.Event()
        self.futures: list[Any] = []
        self._thread = threading.Thread(target=self._feed)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(LIMIT)

    def _feed(self) -> None:
        for number in itertools.count(self._first):
            if self._ending.is_set():
                return
            self.futures.append(self._running.submit(np.full(4, number, np.float32)))
            time.sleep(2 * SECONDS)

    def failures(self) -> int:
        """Wait for all frames, check those that were delivered and their order, and count the others."""
        count = 0
        for number, future in enumerate(self.futures):
            if future.exception(LIMIT) is not None:
                count += 1
            else:
                assert future.result()[0] == number
        return count


def await_counts(updater: Updater, total: int) -> None:
    deadline = time.monotonic() + LIMIT
    while sum((updater.counts.applied, updater.counts.refused, updater.counts.rolled_back)) < total:
        assert time.monotonic() < deadline, updater.counts
        time.sleep(0.005)
