"""TensorSlot: address and packing of a tensor in VTA's memory."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from boards.vta.compiler.packing import blocks, pack, unpack
from boards.vta.isa.config import Config
from boards.vta.lowering.values import HALF
from pipeline.core.plan.plan import TensorSpec

_ZEROS = {"int8": 0, "uint8": HALF}
"""The zero point of each type of bytes."""


class TensorSlot(msgspec.Struct, frozen=True):
    """Address of a tensor, with its shape and zero point.

    Attributes
    ----------
    address : int
        Address of its first byte, from the beginning of the memory.
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

    def describe_misfit(self, config: Config, spec: TensorSpec, memory_bytes: int) -> str:
        """Describe a plan tensor's conflict with this slot, else empty."""
        if self.extents != spec.shape:
            return f"extents are {list(self.extents[:8])}, and the plan's {spec}"
        if self.zero != _ZEROS.get(spec.dtype):
            return f"zero is {self.zero}, and the plan's {spec}"
        if min(self.shape) < 1 or math.prod(self.shape) != math.prod(self.extents):
            return f"shape is {list(self.shape)} for a tensor of {list(self.extents)}"
        # With Python's integers, which do not overflow: NumPy would cut a slice at the end of the memory.
        if not 0 <= self.address <= memory_bytes - self._packed_bytes(config):
            return f"address is {self.address}, and its {self._packed_bytes(config)} bytes are not in {memory_bytes}"
        return ""

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
        elements = memory[self.address : self.address + self._packed_bytes(config)].view(np.int8)
        values = unpack(elements.reshape(-1, height, width, config.block), channels).reshape(self.extents)
        return values.view(np.uint8) ^ np.uint8(self.zero) if self.zero else values

    def _packed_bytes(self, config: Config) -> int:
        channels, height, width = self.shape
        return blocks(config, channels) * config.block * height * width
