"""Plans and devices for the tests of the scheduler."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor.devices.base import DeviceRuntime

LIMIT = 30.0
"""Seconds after which a test that waits gives up; nothing is ever measured by it."""


def make_graph(
    stages: Mapping[str, Sequence[str]],
    *,
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str],
    makes: Mapping[str, Sequence[str]] | None = None,
    devices: Mapping[str, Device] | None = None,
    kind: str = "null",
    shape: tuple[int, ...] = (4,),
    **stage_options: Any,
) -> Plan:
    """Return a plan.  `stages`: name -> tensors it reads; it makes one of its own name unless `makes` says."""
    devices, makes = devices or {}, makes or {}
    in_flight = stage_options.pop("in_flight", 0)
    standard = Device("d", kind)
    board = Board("test", tuple({device.name: device for device in (standard, *devices.values())}.values()), ())
    stage_plans = tuple(
        StagePlan(
            name,
            devices.get(name, standard).name,
            tuple(TensorSpec(each, shape) for each in reads),
            tuple(TensorSpec(each, shape) for each in makes.get(name, (name,))),
            **{option: value[name] if isinstance(value, dict) else value for option, value in stage_options.items()},
        )
        for name, reads in stages.items()
    )
    specs = [tuple(TensorSpec(name, shape) for name in names) for names in (inputs, outputs)]
    return Plan("test", "", board, specs[0], specs[1], stage_plans, in_flight)


def make_chain(stages: int = 3, **options: Any) -> Plan:
    """Return a plan of stages a, b, c, ... one after the other, from x to the last one's tensor."""
    names = [chr(ord("a") + number) for number in range(stages)]
    return make_graph(
        dict(zip(names, [["x"], *([name] for name in names)], strict=False)), outputs=names[-1:], **options
    )


@dataclass
class Tensor:
    """An array that knows where it lies."""

    memory: str
    array: np.ndarray


class FunctionRuntime(DeviceRuntime):
    """Runs Python functions, and insists on its own memory and its own thread."""

    def __init__(self, device: Device, log: list[tuple[str, str]]) -> None:
        super().__init__(device)
        self.log = log
        self.thread = 0

    def open(self, cores: Sequence[int]) -> None:
        self.thread = threading.get_ident()
        self.log.append(("open", self.device.name))

    def load(self, stage: StagePlan, code: Any) -> Any:
        if isinstance(code, BaseException):
            raise code
        self._mine()
        return code

    def run(self, program: Callable[..., Sequence[np.ndarray]], inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        self._mine()
        if foreign := [tensor.memory for tensor in inputs if tensor.memory != self.memory]:
            raise AssertionError(f"a tensor of {foreign[0]} in {self.memory}")
        return [Tensor(self.memory, array) for array in program(*(tensor.array for tensor in inputs))]

    def copy_in(self, array: np.ndarray) -> Tensor:
        self._mine()
        self.log.append(("in", self.device.name))
        return Tensor(self.memory, array)

    def copy_out(self, tensor: Tensor) -> np.ndarray:
        self._mine()
        self.log.append(("out", self.device.name))
        return tensor.array

    def close(self) -> None:
        self._mine()
        self.log.append(("close", self.device.name))

    def _mine(self) -> None:
        if self.thread != threading.get_ident():
            raise AssertionError("a runtime was used outside its worker's thread")


class Functions:
    """Devices that run Python functions, and what was asked of them."""

    def __init__(self) -> None:
        self.log: list[tuple[str, str]] = []

    def __call__(self, device: Device) -> DeviceRuntime:
        return FunctionRuntime(device, self.log)


class Gate:
    """A stage that waits until it is let go."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Semaphore(0), threading.Event()

    def __call__(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        self.entered.release()
        if not self.open.wait(LIMIT):
            raise TimeoutError("the gate was never opened")
        return arrays

    def wait_entered(self) -> None:
        """Wait until one more frame is held."""
        if not self.entered.acquire(timeout=LIMIT):
            raise TimeoutError("no frame came")


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds that nobody announces."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the condition has never held")
        threading.Event().wait(0.001)


@pytest.fixture
def graph() -> Callable[..., Plan]:
    return make_graph


@pytest.fixture
def chain() -> Callable[..., Plan]:
    return make_chain


@pytest.fixture
def functions() -> Functions:
    return Functions()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


@pytest.fixture
def two_memories() -> dict[str, Device]:
    return {"near": Device("near", "test", memory="host"), "far": Device("far", "test", memory="far")}


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    earlier_threads = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - earlier_threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), f"{thread.name} was left running"
