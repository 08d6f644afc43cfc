"""DeviceCandidate: a possible executor of a remote device's frames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from pipeline.core.plan.plan import StagePlan

Loaded = Sequence[tuple[StagePlan, Any]]
"""Stages that a runtime has loaded, with their code."""


class DeviceCandidate(ABC):
    """Remote device, or its local stand-in, for frames of one stage."""

    def thread_kind(self) -> Hashable:
        """Return its kind of threads; see `DeviceRuntime.thread_kind`."""
        return None

    @property
    def session_address(self) -> str:
        """Address of the session's server, empty without session."""
        return ""

    def break_off(self) -> None:  # noqa: B027 - a device of this machine cannot be interrupted
        """Abort a hanging call, from another thread."""

    @abstractmethod
    def prepare(self) -> None:
        """Load all stages of the runtime, or raise `DeviceLost`."""

    def run(self, program: int, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Run one frame through a stage, or raise `DeviceLost`."""
        return self.run_timed(program, inputs)[0]

    @abstractmethod
    def run_timed(self, program: int, inputs: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], float]:
        """Run one frame with the device's seconds, or raise `DeviceLost`."""

    @abstractmethod
    def close(self) -> None:
        """Give it back."""
