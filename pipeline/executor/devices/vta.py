"""The int8 accelerator VTA, on a Zynq board with pynq, or simulated where the device's name says so."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.board import Device
from pipeline.errors import BuildError
from pipeline.executor.code import StageCode
from pipeline.executor.devices.base import OwnCompiler
from pipeline.executor.devices.null import NullRuntime
from pipeline.plans import StagePlan

if TYPE_CHECKING:
    from boards.vta.driver.driver import Driver, Loaded
    from boards.vta.driver.hardware import Hardware
    from boards.vta.lowering.artifact import Artifact

SIMULATED = "simulated"
"""In a device's name: no board is needed."""


@dataclass(frozen=True, eq=False)
class _Stage:
    artifact: Artifact
    loaded: Loaded


class VtaRuntime(NullRuntime, OwnCompiler):
    """Runs each stage as one program; tensors are arrays, which are packed on their way into VTA's memory."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._driver: Driver | None = None

    @staticmethod
    def check(device: Device) -> None:
        """Raise `BoardError` if a device's target is no VTA."""
        from boards.vta import target

        target.config(device.target)

    @staticmethod
    def is_here(device: Device) -> bool:
        """Return whether stages for a device can run on this machine."""
        return SIMULATED in device.name or importlib.util.find_spec("pynq") is not None

    @staticmethod
    def compiled(module: Any, device: Device) -> StageCode:
        """Compile one stage's Relax module for a device.

        Raises
        ------
        BuildError
            If VTA cannot run one of its operators.
        """
        from boards.vta import target
        from boards.vta.lowering.artifact import Artifact
        from boards.vta.lowering.stage import of_module
        from boards.vta.lowering.values import Unsupported

        try:
            made = Artifact.of(of_module(module), target.config(device.target))
        except Unsupported as error:
            raise BuildError(f"VTA cannot run it: {error}") from None
        return StageCode(lambda: made, made.arrays(), executable=made, calls=())

    def load(self, stage: StagePlan, code: StageCode | None) -> _Stage:
        """Put a stage's program into the board's memory."""
        from boards.vta.lowering import artifact

        if code is None:
            raise BuildError(f"stage {stage.name!r} has no program for VTA; build the bundle for this board")
        found = code.executable if code.library is None else artifact.read(code.library, code.parameters)
        return _Stage(found, self._opened().load(found.program))

    def run(self, program: _Stage, inputs: Sequence[Any]) -> Sequence[Any]:
        """Pack the inputs, run, and unpack the outputs."""
        driver = self._opened()
        memory, config = program.loaded.memory.array, driver.config
        for slot, array in zip(program.artifact.inputs, inputs, strict=True):
            slot.write(config, array, memory)
        driver.run(program.loaded)
        return [slot.read(config, memory) for slot in program.artifact.outputs]

    def _opened(self) -> Driver:
        if self._driver is None:
            from boards.vta import target
            from boards.vta.driver.driver import Driver

            self._driver = Driver(target.config(self.device.target), _hardware(self.device))
        return self._driver

    def close(self) -> None:
        """Give the board back."""
        if self._driver is not None:
            self._driver.close()
            self._driver = None


def _hardware(device: Device) -> Hardware:
    from boards.vta import target

    config = target.config(device.target)
    if SIMULATED in device.name:
        from boards.vta.driver.simulated import SimulatedBoard

        return SimulatedBoard(config)
    from boards.vta.driver.pynq import PynqBoard

    return PynqBoard(config, target.bitstream(device.target))
