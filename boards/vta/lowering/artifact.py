"""Artifact: a compiled stage with what its tensors are, in memory or as a file beside its arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.compiler.network import Network, Place
from boards.vta.compiler.packing import pack, unpack
from boards.vta.config import Config
from boards.vta.lowering.stage import Lowered
from boards.vta.lowering.values import Tensor
from boards.vta.program import Program
from pipeline.errors import BundleError

FORMAT = 1
STREAM, MEMORY = "vta stream", "vta memory"
"""Names of the arrays."""


@dataclass(frozen=True)
class Slot:
    """Where a tensor is, and what the model takes it for.

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
        signed = (np.ascontiguousarray(array).view(np.uint8) ^ np.uint8(self.zero)).view(np.int8)
        packed = pack(config, signed.reshape(self.shape)).reshape(-1).view(np.uint8)
        memory[self.address : self.address + packed.size] = packed

    def read(self, config: Config, memory: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
        """Return a tensor of the model from the memory."""
        channels, height, width = self.shape
        size = -(-channels // config.block) * config.block * height * width
        packed = memory[self.address : self.address + size].view(np.int8).reshape(-1, height, width, config.block)
        values = unpack(packed, channels).reshape(self.extents)
        return values.view(np.uint8) ^ np.uint8(self.zero) if self.zero else values


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compiled stage.

    Attributes
    ----------
    program : Program
        For inputs of zeros.
    inputs, outputs : tuple of Slot
    """

    program: Program
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]

    @classmethod
    def of(cls, lowered: Lowered, config: Config) -> Artifact:
        """Compile the steps of a stage."""
        network: Network = lowered.network(config)
        base = network.program.base
        inputs = _slots(network.inputs, lowered.inputs, base)
        return cls(network.program, inputs, _slots(network.outputs, lowered.outputs, base))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the instructions, and the memory with weights and micro-ops."""
        return {STREAM: self.program.stream(), MEMORY: self.program.memory}

    def export_library(self, path: str, **_: Any) -> None:
        """Write all but the arrays, where a bundle has a stage's code."""
        config = json.loads(self.program.config.to_json())
        slots = {name: [asdict(each) for each in getattr(self, name)] for name in ("inputs", "outputs")}
        facts = {"vta": FORMAT, "config": config, "base": self.program.base, **slots}
        Path(path).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def read(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> Artifact:
    """Return the artifact of a bundle's stage.

    Raises
    ------
    BundleError
        If the file is none.
    """
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts["vta"] != FORMAT:
            raise BundleError(f"{str(path)!r} has format {facts['vta']} of VTA stages; this version reads {FORMAT}")
        config = Config.from_json(json.dumps(facts["config"]))
        program = Program.of_stream(config, arrays[STREAM], arrays[MEMORY], facts["base"])
        inputs, outputs = (tuple(_slot(each) for each in facts[name]) for name in ("inputs", "outputs"))
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(f"{str(path)!r} is no stage for VTA: {error}; build it again") from None
    return Artifact(program, inputs, outputs)


def _slot(found: Mapping[str, Any]) -> Slot:
    channels, height, width = found["shape"]
    return Slot(found["address"], (channels, height, width), tuple(found["extents"]), found["zero"])


def _slots(places: Sequence[Place], tensors: Sequence[Tensor], base: int) -> tuple[Slot, ...]:
    return tuple(
        Slot(place.address - base, tensor.shape, tensor.extents, tensor.zero)
        for place, tensor in zip(places, tensors, strict=True)
    )
