"""The one interface between the scheduler and every kind of device."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import BuildError

if TYPE_CHECKING:
    from pipeline.core.scale_limits import ScaleLimits
    from pipeline.executor.devices.accelerator import Accelerator
    from pipeline.executor.stage_code import StageCode
    from pipeline.executor.stage_source import StageSource


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
    opening_s : float
        Seconds that opening and loading may always take, where the device is opened again after it has hung.
    """

    opening_s = 10.0

    def __init__(self, device: Device) -> None:
        self.device = device

    @property
    def memory(self) -> str:
        """Name of the memory that its tensors live in; equal names pass by reference."""
        return self.device.memory

    @property
    def occupies_cores(self) -> bool:
        """True if a run keeps the stage's host cores busy, so that no other stage may run on them meanwhile."""
        return self.device.capabilities.occupies_cores

    @staticmethod
    def detect() -> Sequence[Accelerator]:
        """Search this machine for devices of this kind; only asked for if the kind is ``detectable``."""
        return ()

    @staticmethod
    def why_absent(device: Device) -> str:  # noqa: ARG004 - most devices are on every machine
        """Return the reason why stages of `device` cannot run on this machine; empty if they can."""
        return ""

    @staticmethod
    def ask_target(device: Device) -> dict[str, object]:
        """Return the target of a device of another machine, which is asked for it.

        Raises
        ------
        BuildError
            If nobody can be asked.
        """
        raise BuildError(f"device {device.name!r} has no target; write it into the board")

    def thread_kind(self, cores: Sequence[int]) -> Hashable:  # noqa: ARG002 - most devices leave nothing in a thread
        """Return the kind of threads in which `open` may find the remains of an earlier one, such as a thread pool.

        None, if nothing remains in a thread: then it ends with its work.
        """
        return None

    def open(self, cores: Sequence[int]) -> None:  # noqa: B027 - most devices need nothing here
        """Take the device into use for the calling thread, which shall run on `cores` only."""

    @abstractmethod
    def load(self, stage: StagePlan, code: Any) -> Any:
        """Return `code`, the built stage, made ready to run; None stands for a stage without code."""

    @abstractmethod
    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run a loaded stage on tensors of this device and return its output tensors, in the plan's order."""

    def run_in_turn(self, program: Any, inputs: Sequence[Any], turn: AbstractContextManager[object]) -> Sequence[Any]:
        """Run a loaded stage, as `run`, on a device that others use as well, and whose turn this is inside of `turn`.

        What a device does not need for itself, such as bringing tensors into its layout, is better done outside.
        """
        with turn:
            return self.run(program, inputs)

    def run_timed(self, program: Any, inputs: Sequence[Any]) -> tuple[Sequence[Any], float]:
        """Run a loaded stage, and return its output tensors and the seconds that the device took."""
        # Includes what the call itself costs.
        begin = time.perf_counter()
        outputs = self.run(program, inputs)
        return outputs, time.perf_counter() - begin

    @abstractmethod
    def copy_in(self, array: np.ndarray) -> Any:
        """Return a tensor of this device with the array's contents; it may share the array's memory."""

    @abstractmethod
    def copy_out(self, tensor: Any) -> np.ndarray:
        """Return the tensor's contents in host memory; the array may share the tensor's memory."""

    def break_off(self) -> None:  # noqa: B027 - most devices cannot
        """End the call that hangs in the worker's thread, if that can be done; called in another thread."""

    def close(self) -> None:  # noqa: B027 - most devices need nothing here
        """Give the device back; called once, in the worker's thread."""


class NumberedRuntime(DeviceRuntime):
    """A device that is told which frame it runs.

    Attributes
    ----------
    frame_number : int
        That of the frame to run.
    """

    frame_number = 0


# A base of its own: most kinds are compiled by TVM, and need none of this.
class OwnCompiler(ABC):
    """Second base of an adapter whose kind of device has a compiler other than TVM."""

    @staticmethod
    @abstractmethod
    def check(device: Device) -> None:
        """Raise `BoardError` if the device's target is none."""

    @staticmethod
    @abstractmethod
    def is_here(device: Device) -> bool:
        """Return True if stages for a device can run on this machine."""

    @staticmethod
    def scale_limits() -> ScaleLimits | None:
        """Return the limits of the scales of quantised tensors; None if they may be any."""
        return None

    @staticmethod
    @abstractmethod
    def compile_stage(source: StageSource, device: Device) -> StageCode:
        """Compile a stage for a device; raise `BuildError` if it cannot run one of the operators."""
