"""Encoding of instructions and micro-ops as machine words, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from boards.vta.isa.config import INSTRUCTION_BYTES, UOP_BYTES, Config, MemoryType
from boards.vta.isa.instructions import (
    Alu,
    AluOpcode,
    Finish,
    Gemm,
    Instruction,
    LoadInstruction,
    Opcode,
    StoreInstruction,
    Uop,
)
from boards.vta.isa.layout import BitField, fields, uop_fields
from pipeline.errors import InstructionError

Words = npt.NDArray[np.uint64]
Uops = npt.NDArray[np.uint32]

_CLASSES: dict[Opcode, type[Instruction]] = {
    instruction.opcode: instruction for instruction in (LoadInstruction, StoreInstruction, Gemm, Finish, Alu)
}
# Fields of one bit, which instructions hold as bool.
_FLAGS = ("pop_prev", "pop_next", "push_prev", "push_next", "reset_reg", "use_imm")
_WORD = (1 << 64) - 1
_Code = TypeVar("_Code", Opcode, MemoryType, AluOpcode)


def encode(config: Config, instructions: Iterable[Instruction]) -> Words:
    """Encode a stream as ``uint64[n, 2]``, low word first, or raise `InstructionError`."""
    pairs = []
    for index, instruction in enumerate(instructions):
        try:
            bits = _encode_bits(config, instruction)
        except InstructionError as error:
            raise InstructionError(f"instruction {index}: {error}") from None
        # No field crosses the border of the two words; see `boards.vta.isa.layout`.
        pairs.append((bits & _WORD, bits >> 64))
    return np.array(pairs, np.uint64).reshape(-1, 2)


def decode(config: Config, stream: Words) -> tuple[Instruction, ...]:
    """Decode a stream ``uint64[n, 2]``; unused bits may have any value.

    Raises
    ------
    InstructionError
        If an opcode, a memory type or an ALU opcode is unknown; the message has the instruction's index.
    """
    # Integers of Python: no integer of NumPy has 128 bits.
    pairs = enumerate(zip(stream[:, 0].tolist(), stream[:, 1].tolist(), strict=True))
    return tuple(_decode_bits(config, index, low | high << 64) for index, (low, high) in pairs)


def read_stream(data: bytes) -> Words:
    """Read a stream file: 16 bytes per instruction, little-endian, or raise `InstructionError`."""
    return _split_bytes(data, INSTRUCTION_BYTES, "instructions").view("<u8").astype(np.uint64).reshape(-1, 2)


def read_uops(data: bytes) -> Uops:
    """Read a micro-op file: 4 bytes per micro-op, little-endian."""
    return _split_bytes(data, UOP_BYTES, "micro-ops").view("<u4").astype(np.uint32)


def pack_uops(config: Config, dst: npt.ArrayLike, src: npt.ArrayLike, wgt: npt.ArrayLike) -> Uops:
    """Return micro-ops of three index arrays as ``uint32[n]``, or raise `InstructionError`."""
    words = np.zeros(np.broadcast_shapes(*map(np.shape, (dst, src, wgt))), np.int64)
    for field, indices in zip(uop_fields(config), (dst, src, wgt), strict=True):
        # Wider than any field, so that what does not fit is refused, not cut off.
        values = np.asarray(indices, np.int64)
        # The extremes are enough to check: all others lie between.
        _place_bits(field, "micro-op", int(values.min(initial=0)))
        _place_bits(field, "micro-op", int(values.max(initial=0)))
        words |= values << field.bit
    return words.astype(np.uint32)


def decode_uops(config: Config, uops: Uops) -> tuple[Uop, ...]:
    """Return the micro-ops of ``uint32[n]``."""
    return tuple(map(Uop, *(indices.tolist() for indices in uop_indices(config, uops))))


def uop_indices(config: Config, uops: Uops) -> tuple[npt.NDArray[np.int64], ...]:
    """Split micro-ops ``uint32[n]`` into indices dst, src, wgt as ``int64[n]``."""
    words = uops.astype(np.int64)
    return tuple(words >> field.bit & field.high for field in uop_fields(config))


def _encode_bits(config: Config, instruction: Instruction) -> int:
    name = instruction.opcode.name
    bits = 0
    for field in fields(config, instruction.opcode):
        value = getattr(instruction, field.name)
        if field.name == "memory_type" and _has_no_code(config, instruction):
            value = 0
        bits |= _place_bits(field, name, value)
    return bits


def _has_no_code(config: Config, instruction: Instruction) -> bool:
    """Recognise the old version's STORE, two bits short of OUT's code 4."""
    return (
        isinstance(instruction, StoreInstruction)
        and config.hw_ver == "0.0.1"
        and instruction.memory_type is MemoryType.OUT
    )


def _place_bits(field: BitField, name: str, value: int) -> int:
    if not field.low <= value <= field.high:
        value_name = value.name if isinstance(value, MemoryType | AluOpcode) else value
        raise InstructionError(
            f"{name}: {field.name} is {value_name}; its {field.width} bits hold {field.low} to {field.high}"
        )
    # The mask makes two's complement of negative numbers, which only `imm` may have.
    return (value & (1 << field.width) - 1) << field.bit


def _decode_bits(config: Config, index: int, bits: int) -> Instruction:
    # VTA_OPCODE_BIT_WIDTH is 3, and each struct of hw_spec.h begins with the opcode.
    opcode = _parse_code(Opcode, bits & 7, "opcode", index)
    values: dict[str, int] = {}
    for field in fields(config, opcode)[1:]:
        value = bits >> field.bit & (1 << field.width) - 1
        values[field.name] = value - (1 << field.width) if field.has_sign and value > field.high else value
    # A dataclass keeps what it is handed: 1 would be shown where True is meant.
    for flag in _FLAGS:
        if flag in values:
            values[flag] = bool(values[flag])
    if "memory_type" in values:
        values["memory_type"] = _memory(config, opcode, values["memory_type"], index)
    if "alu_opcode" in values:
        values["alu_opcode"] = _parse_code(AluOpcode, values["alu_opcode"], "alu_opcode", index)
    return _CLASSES[opcode](**values)  # type: ignore[arg-type]


def _memory(config: Config, opcode: Opcode, code: int, index: int) -> MemoryType:
    if opcode is Opcode.STORE and config.hw_ver == "0.0.1" and code == 0:
        return MemoryType.OUT
    return _parse_code(MemoryType, code, "memory_type", index)


def _parse_code(kind: type[_Code], code: int, field: str, index: int) -> _Code:
    try:
        return kind(code)
    except ValueError:
        codes = ", ".join(f"{member.value} {member.name}" for member in kind)
        raise InstructionError(f"instruction {index}: {field} is {code}; known are {codes}") from None


def _split_bytes(data: bytes, size: int, name: str) -> npt.NDArray[np.uint8]:
    if len(data) % size:
        raise InstructionError(f"{len(data)} bytes are no whole number of {name} of {size} bytes")
    return np.frombuffer(data, np.uint8)
