"""Artifact: a compiled stage with what its tensors are, in memory or as a file beside its arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.compiler.network import Network, TensorLocation
from boards.vta.compiler.packing import pack, unpack
from boards.vta.isa.config import Config
from boards.vta.isa.program import VtaProgram
from boards.vta.lowering.stage import LoweredStage
from boards.vta.lowering.values import MemoryTensor
from pipeline.errors import BundleError

FORMAT = 1
STREAM, MEMORY = "vta stream", "vta memory"
"""Names of the arrays."""


@dataclass(frozen=True)
class TensorSlot:
    """The address of a tensor, and the shape and zero point that the model gives it.

    Attributes
    ----------
    address : int
        Of its first byte, from the beginning of the memory.
    shape : tuple of int
        Channels, height and width.
    extents : tuple of int
        The model's.
    zero : int
        128 if the model's bytes are unsigned.
    """

    address: int
    shape: tuple[int, int, int]
    extents: tuple[int, ...]
    zero: int

    def write(self, config: Config, array: npt.NDArray[Any], memory: npt.NDArray[np.uint8]) -> None:
        """Pack a tensor of the model into the memory."""
        # Turning the highest bit over subtracts 128 modulo 256: what is around 128 gets around 0.
        int8_values = (np.ascontiguousarray(array).view(np.uint8) ^ np.uint8(self.zero)).view(np.int8)
        elements = pack(config, int8_values.reshape(self.shape)).reshape(-1).view(np.uint8)
        memory[self.address : self.address + elements.size] = elements

    def read(self, config: Config, memory: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Return a tensor of the model from the memory."""
        channels, height, width = self.shape
        # Whole blocks are in memory; `unpack` drops the channels that fill up the last one.
        size = -(-channels // config.block) * config.block * height * width
        elements = memory[self.address : self.address + size].view(np.int8).reshape(-1, height, width, config.block)
        values = unpack(elements, channels).reshape(self.extents)
        return values.view(np.uint8) ^ np.uint8(self.zero) if self.zero else values


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compiled stage.

    Attributes
    ----------
    program : VtaProgram
        For inputs of zeros.
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
        """Return the instructions, and the memory with weights and micro-ops."""
        return {STREAM: self.program.stream(), MEMORY: self.program.memory}

    def export_library(self, path: str, **_: Any) -> None:
        """Write all but the arrays, where a bundle has a stage's code."""
        config = json.loads(self.program.config.to_json())
        slots = {name: [asdict(each) for each in getattr(self, name)] for name in ("inputs", "outputs")}
        facts = {"vta": FORMAT, "config": config, "base": self.program.base, **slots}
        Path(path).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def read(data: bytes, arrays: Mapping[str, npt.NDArray[Any]]) -> Artifact:
    """Return the artifact of a bundle's stage, from the bytes that `Artifact.export_library` wrote, and its arrays.

    Raises
    ------
    BundleError
        If the file is none.
    """
    try:
        facts = json.loads(data)
        if facts["vta"] != FORMAT:
            raise BundleError(f"the stage has format {facts['vta']} of VTA stages; this version reads {FORMAT}")
        config = Config.from_json(json.dumps(facts["config"]))
        program = VtaProgram.of_stream(config, arrays[STREAM], arrays[MEMORY], facts["base"])
        inputs, outputs = (tuple(_slot(each) for each in facts[name]) for name in ("inputs", "outputs"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        # It is a ValueError, too, and says already what is wrong.
        if isinstance(error, BundleError):
            raise
        raise BundleError(f"the stage's code is none for VTA: {error}; build the bundle again") from None
    return Artifact(program, inputs, outputs)


def _slot(fields: Mapping[str, Any]) -> TensorSlot:
    channels, height, width = fields["shape"]
    return TensorSlot(fields["address"], (channels, height, width), tuple(fields["extents"]), fields["zero"])


def _slots(locations: Sequence[TensorLocation], tensors: Sequence[MemoryTensor], base: int) -> tuple[TensorSlot, ...]:
    return tuple(
        TensorSlot(location.address - base, tensor.shape, tensor.extents, tensor.zero)
        for location, tensor in zip(locations, tensors, strict=True)
    )
