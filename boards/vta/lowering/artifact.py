"""Artifact: a compiled stage with its tensors, in memory or in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy.typing as npt

from boards.vta.compiler.network import Network, TensorLocation
from boards.vta.isa.config import Config
from boards.vta.isa.program import VtaProgram
from boards.vta.lowering import program_bounds
from boards.vta.lowering.stage import LoweredStage
from boards.vta.lowering.tensor_slot import TensorSlot
from boards.vta.lowering.values import MemoryTensor
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import BundleError, reason

FORMAT = 1
STREAM, MEMORY = "vta stream", "vta memory"
"""Names of the arrays."""


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compiled stage.

    Attributes
    ----------
    program : VtaProgram
        Program for inputs of zeros.
    inputs, outputs : tuple of TensorSlot
    """

    program: VtaProgram
    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]

    @classmethod
    def of(cls, stage: LoweredStage, config: Config) -> Artifact:
        """Compile the steps of a stage."""
        network: Network = stage.network(config)
        base = network.program.base
        inputs = _slots(network.inputs, stage.inputs, base)
        return cls(network.program, inputs, _slots(network.outputs, stage.outputs, base))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the instructions and the memory with weights and micro-ops."""
        return {STREAM: self.program.stream(), MEMORY: self.program.memory}

    def export_library(self, path: str, **_: Any) -> None:
        """Write all but the arrays to the stage's code file."""
        config = msgspec.Raw(self.program.config.to_json().encode())
        facts = _StageFacts(FORMAT, config, self.program.base, self.inputs, self.outputs)
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=1) + b"\n")


class _ArtifactFormat(msgspec.Struct):
    vta: int


class _StageFacts(msgspec.Struct):
    """Contents of a stage's file."""

    vta: int
    config: msgspec.Raw
    base: int
    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]


# Made once, while this is imported: two threads that let msgspec look at one type at the same time end in a segfault.
_FORMAT, _FACTS = msgspec.json.Decoder(_ArtifactFormat), msgspec.json.Decoder(_StageFacts)


def read(data: bytes, arrays: Mapping[str, npt.NDArray[Any]], stage: StagePlan, config: Config) -> Artifact:
    """Return the artifact of a bundle's stage.

    Parameters
    ----------
    data : bytes
        Output of `Artifact.export_library`.
    arrays : mapping of str to numpy.ndarray
        Arrays of `Artifact.arrays`.
    stage : StagePlan
        The stage, whose tensors these must be.
    config : Config
        The device, for which the stage must have been compiled.

    Raises
    ------
    BundleError
        If the file is none, or a number in it points at nothing.
    """
    try:
        # The number alone first: this version's types may refuse the fields of a newer file.
        version = _FORMAT.decode(data).vta
        if version != FORMAT:
            raise BundleError(f"the stage has format {version} of VTA stages; this version reads {FORMAT}")
        facts = _FACTS.decode(data)
        stage_config = Config.from_json(bytes(facts.config))
        problem = _array_misfit(arrays) or _config_misfit(stage_config, config)
        if not problem:
            program = VtaProgram.of_stream(stage_config, arrays[STREAM], arrays[MEMORY], facts.base)
            artifact = Artifact(program, facts.inputs, facts.outputs)
            problem = program_bounds.describe_misfit(program) or _slot_misfit(artifact, stage)
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
        # It is a ValueError, too, and says already what is wrong.
        if isinstance(error, BundleError):
            raise
        # The last three of values that the decoder does not bound: no UTF-8, thousands of digits, nested without end.
        problem = reason(error, line=0)
    if problem:
        raise BundleError(f"the stage's code is none for VTA: {problem}; build the bundle again")
    return artifact


def _array_misfit(arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    for name, dtype, shape in ((STREAM, "uint64", (None, 2)), (MEMORY, "uint8", (None,))):
        array = arrays.get(name)
        if array is None:
            return f"it has no array {name!r}"
        if array.dtype != dtype or array.ndim != len(shape) or array.shape[1:] != shape[1:]:
            return f"its array {name!r} is {array.dtype}{list(array.shape)}"
    return ""


def _config_misfit(config: Config, device_config: Config) -> str:
    # The board alone may be another one: only its clock and its registers' addresses depend on that.
    if replace(config, target=device_config.target) == device_config:
        return ""
    return (
        f"it is for {config.name} with instructions of version {config.hw_ver}, and the device is "
        f"{device_config.name} of version {device_config.hw_ver}"
    )


def _slot_misfit(artifact: Artifact, stage: StagePlan) -> str:
    memory_bytes = artifact.program.memory.nbytes
    for side, slots, specs in (("input", artifact.inputs, stage.inputs), ("output", artifact.outputs, stage.outputs)):
        if len(slots) != len(specs):
            return f"it has {len(slots)} {side}s, and the plan {len(specs)}"
        for number, (slot, spec) in enumerate(zip(slots, specs, strict=True)):
            if problem := slot.describe_misfit(artifact.program.config, spec, memory_bytes):
                return f"{side} {number}: {problem}"
    return ""


def _slots(locations: Sequence[TensorLocation], tensors: Sequence[MemoryTensor], base: int) -> tuple[TensorSlot, ...]:
    return tuple(
        TensorSlot(location.address - base, tensor.shape, tensor.extents, tensor.zero)
        for location, tensor in zip(locations, tensors, strict=True)
    )
