"""DeviceCandidate: one of the places where frames of a remote device's stages may be computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from pipeline.core.plan.plan import StagePlan

Loaded = Sequence[tuple[StagePlan, Any]]
"""Stages that a runtime has loaded, with their code."""


class DeviceCandidate(ABC):
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
