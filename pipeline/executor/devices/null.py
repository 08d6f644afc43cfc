"""Null device: computes nothing, passes inputs by reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.core.plan.plan import StagePlan
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.system import affinity


class NullRuntime(DeviceRuntime):
    """Output ``k`` is input ``k modulo n``, to measure scheduling alone."""

    @property
    def memory(self) -> str:
        """The device's memory, separate from compute devices' non-array tensors."""
        return f"{self.device.memory} (arrays)"

    def open(self, cores: Sequence[int]) -> None:
        """Pin the calling thread to `cores` where possible."""
        affinity.pin(cores)

    def load(self, stage: StagePlan, code: Any) -> Any:  # noqa: ARG002 - there is none
        """Return the input number of every output."""
        # A stage may have more outputs than inputs; inputs repeat then.
        return tuple(output % len(stage.inputs) for output in range(len(stage.outputs)))

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the inputs chosen by `program`."""
        return [inputs[chosen] for chosen in program]

    def copy_in(self, array: np.ndarray) -> np.ndarray:
        """Return `array` itself."""
        return array

    def copy_out(self, tensor: np.ndarray) -> np.ndarray:
        """Return `tensor` itself."""
        return tensor
