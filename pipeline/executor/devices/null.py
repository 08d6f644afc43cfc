"""The null device: computes nothing and passes its inputs on by reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.core.plan.plan import StagePlan
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.system import affinity


class NullRuntime(DeviceRuntime):
    """Output ``k`` of a stage is its input ``k modulo n``: what remains is the cost of the scheduler itself."""

    @property
    def memory(self) -> str:
        """The device's memory, told apart from that of compute devices, whose tensors are no plain arrays."""
        return f"{self.device.memory} (arrays)"

    def open(self, cores: Sequence[int]) -> None:
        """Keep the calling thread on `cores`; where that is not possible it goes where the system likes."""
        affinity.pin(cores)

    def load(self, stage: StagePlan, code: Any) -> Any:  # noqa: ARG002 - there is none
        """Return for each output the number of the input that it repeats."""
        # A stage may have more outputs than inputs; inputs repeat then.
        return tuple(output % len(stage.inputs) for output in range(len(stage.outputs)))

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the inputs that `program` chooses."""
        return [inputs[chosen] for chosen in program]

    def copy_in(self, array: np.ndarray) -> np.ndarray:
        """Return `array` itself."""
        return array

    def copy_out(self, tensor: np.ndarray) -> np.ndarray:
        """Return `tensor` itself."""
        return tensor
