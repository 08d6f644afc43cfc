"""Interface between the scheduler and every kind of device."""

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
    """A device in use by one worker thread.

    The worker calls, in its own thread, `open`, `load`, then `run` for each frame, and `close` at the end. `copy_in`
    and `copy_out` are called between runs, also for tensors that another runtime of the same memory made. A tensor is
    whatever the device computes on; nobody else looks inside.
    """

    opening_s = 10.0
    """Seconds that opening and loading may always take, where the device is opened again after it has hung."""

    def __init__(self, device: Device) -> None:
        self.device = device

    @property
    def memory(self) -> str:
        """Memory of its tensors; equal names pass by reference."""
        return self.device.memory

    @property
    def occupies_cores(self) -> bool:
        """True if a run occupies the stage's host cores exclusively."""
        return self.device.capabilities.occupies_cores

    @staticmethod
    def detect() -> Sequence[Accelerator]:
        """Detect this kind's devices; called only for ``detectable`` kinds."""
        return ()

    @staticmethod
    def why_absent(device: Device) -> str:  # noqa: ARG004 - most devices are on every machine
        """Explain why stages of `device` cannot run here, empty if they can."""
        return ""

    @staticmethod
    def ask_target(device: Device) -> dict[str, object]:
        """Ask a remote device's machine for its target, or raise `BuildError`."""
        raise BuildError(f"device {device.name!r} has no target; write it into the board")

    def thread_kind(self, cores: Sequence[int]) -> Hashable:  # noqa: ARG002 - most devices leave nothing in a thread
        """Return the kind of threads with leftovers of `open`, such as thread pools.

        None means that nothing remains in a thread, which then ends with its work.
        """
        return None

    def open(self, cores: Sequence[int]) -> None:  # noqa: B027 - most devices need nothing here
        """Open the device for the calling thread, restricted to `cores`."""

    @abstractmethod
    def load(self, stage: StagePlan, code: Any) -> Any:
        """Load a built stage, None for a stage without code."""

    @abstractmethod
    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run a loaded stage on device tensors; outputs are in plan order."""

    def run_in_turn(self, program: Any, inputs: Sequence[Any], turn: AbstractContextManager[object]) -> Sequence[Any]:
        """Run a loaded stage on a shared device, in its `turn`.

        Work that does not need the device, such as bringing tensors into its layout, is better done outside.
        """
        with turn:
            return self.run(program, inputs)

    def run_timed(self, program: Any, inputs: Sequence[Any]) -> tuple[Sequence[Any], float]:
        """Run a loaded stage; return outputs and the device's seconds."""
        # Includes what the call itself costs.
        begin = time.perf_counter()
        outputs = self.run(program, inputs)
        return outputs, time.perf_counter() - begin

    @abstractmethod
    def copy_in(self, array: np.ndarray) -> Any:
        """Return a device tensor from an array, possibly sharing its memory."""

    @abstractmethod
    def copy_out(self, tensor: Any) -> np.ndarray:
        """Return an array from a tensor, possibly sharing its memory."""

    def break_off(self) -> None:  # noqa: B027 - most devices cannot
        """Abort a hanging call if possible; called from another thread."""

    def close(self) -> None:  # noqa: B027 - most devices need nothing here
        """Release the device; called once, in the worker's thread."""


class NumberedRuntime(DeviceRuntime):
    """A device informed of the current frame's number."""

    frame_number = 0
    """Number of the frame to run."""


# A base of its own: most kinds are compiled by TVM, and need none of this.
class OwnCompiler(ABC):
    """Second base of adapters with a compiler other than TVM."""

    @staticmethod
    @abstractmethod
    def check(device: Device) -> None:
        """Raise `BoardError` if the device's target is none."""

    @staticmethod
    @abstractmethod
    def is_here(device: Device) -> bool:
        """Test if this machine can run stages of a device."""

    @staticmethod
    def scale_limits() -> ScaleLimits | None:
        """Return limits on quantisation scales, None for any."""
        return None

    @staticmethod
    @abstractmethod
    def compile_stage(source: StageSource, device: Device) -> StageCode:
        """Compile a stage; raise `BuildError` for an unsupported operator."""
