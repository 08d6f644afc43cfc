"""VTA device: on a Zynq board with pynq, or simulated."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import BuildError, BundleError, MissingExtra
from pipeline.executor.devices.base import OwnCompiler
from pipeline.executor.devices.null import NullRuntime
from pipeline.executor.stage_code import StageCode

if TYPE_CHECKING:
    from boards.vta.driver.driver import Driver, LoadedProgram
    from boards.vta.driver.hardware import Hardware
    from boards.vta.lowering.artifact import Artifact
    from pipeline.core.scale_limits import ScaleLimits
    from pipeline.executor.stage_source import StageSource


@dataclass(frozen=True, eq=False)
class _VtaStage:
    artifact: Artifact
    image: LoadedProgram


class VtaRuntime(NullRuntime, OwnCompiler):
    """Runs each stage as one program, packing tensors for VTA."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        # Opened with the first stage that is loaded, since opening may put a bitstream into the board's logic.
        self._driver: Driver | None = None

    @staticmethod
    def check(device: Device) -> None:
        """Raise `BoardError` if a device's target is no VTA."""
        from boards.vta import target

        target.config(device.target)

    @staticmethod
    def is_here(device: Device) -> bool:
        """Test if this machine can run stages of a device."""
        from boards.vta import target

        # Looked for, not imported: whoever asks may build for another machine.
        return target.is_simulated(device.target) or importlib.util.find_spec("pynq") is not None

    @staticmethod
    def scale_limits() -> ScaleLimits:
        """Powers of two within VTA's shifts and sums."""
        from boards.vta.compiler.layers import LIMITS

        return LIMITS

    @staticmethod
    def compile_stage(source: StageSource, device: Device) -> StageCode:
        """Compile one stage for a device, or raise `BuildError`."""
        from boards.vta import target
        from boards.vta.lowering.artifact import Artifact
        from boards.vta.lowering.stage import lower_module
        from boards.vta.lowering.values import Unsupported

        try:
            stage_artifact = Artifact.of(lower_module(source.module()), target.config(device.target))
        except Unsupported as error:
            raise BuildError(f"VTA cannot run it: {error}") from None
        return StageCode(lambda: stage_artifact, stage_artifact.arrays(), executable=stage_artifact, calls=())

    def load(self, stage: StagePlan, code: StageCode | None) -> _VtaStage:
        """Put a stage's program into the board's memory.

        Raises
        ------
        BundleError
            If a bundle's stage is for another device, or one of its numbers points outside of what it is about.
        """
        from boards.vta import target
        from boards.vta.lowering import artifact

        if code is None:
            raise BuildError(f"stage {stage.name!r} has no program for VTA; build the bundle for this board")
        # A stage that was compiled in this process is at hand; one of a bundle is read from its bytes and arrays.
        if code.library is None:
            stage_artifact = code.executable
        else:
            config = target.config(self.device.target)
            try:
                stage_artifact = artifact.read(code.library.array.tobytes(), code.parameters, stage, config)
            except BundleError as error:
                raise BundleError(f"{code.file or stage.name!r}: {error}") from None
        return _VtaStage(stage_artifact, self._open_driver().load(stage_artifact.program))

    def run(self, program: _VtaStage, inputs: Sequence[Any]) -> Sequence[Any]:
        """Pack the inputs, run, and unpack the outputs."""
        return self.run_in_turn(program, inputs, nullcontext())

    def run_in_turn(
        self, program: _VtaStage, inputs: Sequence[Any], turn: AbstractContextManager[object]
    ) -> Sequence[Any]:
        """Pack the inputs, run in turn, and unpack the outputs."""
        driver = self._open_driver()
        memory, config = program.image.memory.array, driver.config
        # Inputs are always copied: VTA's layout has blocks of channels, which no array of the model has.
        for slot, array in zip(program.artifact.inputs, inputs, strict=True):
            slot.write(config, array, memory)
        with turn:
            driver.run(program.image)
        return [slot.read(config, memory) for slot in program.artifact.outputs]

    def _open_driver(self) -> Driver:
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
    if target.is_simulated(device.target):
        from boards.vta.driver.simulated import SimulatedBoard

        return SimulatedBoard(config)
    from boards.vta.driver.pynq import PynqBoard

    try:
        return PynqBoard(config, target.bitstream(device.target))
    except MissingExtra as error:
        remedy = f"'{target.SIMULATED} = true' in its target simulates it"
        raise MissingExtra(f"device {device.name!r}: {error}, if this is a board; {remedy}") from None
