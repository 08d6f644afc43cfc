"""The one interface between the scheduler and every kind of device."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.board import Device
from pipeline.plans import StagePlan

if TYPE_CHECKING:
    from pipeline.executor.code import StageCode


class DeviceRuntime(ABC):
    """A device that has been taken into use by one worker thread.

    The worker calls, in its own thread, `open`, `load`, then `run` for each frame, and `close` at the end.
    `copy_in` and `copy_out` are called between runs, also for tensors that another runtime of the same
    memory made.  A tensor is whatever the device computes on; nobody else looks inside.

    Parameters
    ----------
    device : Device
        What the board says of it.

    Attributes
    ----------
    occupies_cores : bool
        Whether a run keeps the stage's host cores busy, so that no other stage may run on them meanwhile.
    """

    occupies_cores = True

    def __init__(self, device: Device) -> None:
        self.device = device

    @property
    def memory(self) -> str:
        """Name of the memory that its tensors live in; equal names pass by reference."""
        return self.device.memory

    def open(self, cores: Sequence[int]) -> None:  # noqa: B027 - most devices need nothing here
        """Take the device into use for the calling thread, which shall run on `cores` only."""

    @abstractmethod
    def load(self, stage: StagePlan, code: Any) -> Any:
        """Return `code`, the built stage, made ready to run; None stands for a stage without code."""

    @abstractmethod
    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run a loaded stage on tensors of this device and return its output tensors, in the plan's order."""

    def timed(self, program: Any, inputs: Sequence[Any]) -> tuple[Sequence[Any], float]:
        """Run a loaded stage, and return its output tensors and the seconds that the device took."""
        begin = time.perf_counter()
        made = self.run(program, inputs)
        return made, time.perf_counter() - begin

    @abstractmethod
    def copy_in(self, array: np.ndarray) -> Any:
        """Return a tensor of this device with the array's contents; it may share the array's memory."""

    @abstractmethod
    def copy_out(self, tensor: Any) -> np.ndarray:
        """Return the tensor's contents in host memory; the array may share the tensor's memory."""

    def close(self) -> None:  # noqa: B027 - most devices need nothing here
        """Give the device back; called once, in the worker's thread."""


class OwnCompiler(ABC):
    """What the adapter of a kind of device also is, if something other than TVM compiles for it."""

    @staticmethod
    @abstractmethod
    def check(device: Device) -> None:
        """Raise `BoardError` if the device's target is none."""

    @staticmethod
    @abstractmethod
    def is_here(device: Device) -> bool:
        """Return whether stages for a device can run on this machine."""

    @staticmethod
    @abstractmethod
    def compiled(module: Any, device: Device) -> StageCode:
        """Compile a stage's Relax module for a device; raise `BuildError` if it cannot run one of the operators."""
