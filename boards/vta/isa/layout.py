"""Layout: the bits of an instruction's fields, by configuration and version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from boards.vta.isa.config import Config, MemoryType
from boards.vta.isa.instructions import Opcode

# The order and the widths are those of VTAMemInsn, VTAGemInsn and VTAAluInsn in hw_spec.h, and of its VTA_*_BIT_WIDTH.
_FLAGS = (("opcode", 3), ("pop_prev", 1), ("pop_next", 1), ("push_prev", 1), ("push_next", 1))
# C's bit fields of uint64_t never cross a word: what does not fit the first begins the second.
_SECOND_WORD = 64


@dataclass(frozen=True)
class BitField:
    """Bits of one value, from the lowest of 128 (micro-op: 32)."""

    name: str
    bit: int
    width: int
    has_sign: bool = False

    @property
    def low(self) -> int:
        """The smallest value."""
        return -(1 << self.width - 1) if self.has_sign else 0

    @property
    def high(self) -> int:
        """The largest value."""
        return (1 << self.width - self.has_sign) - 1


@lru_cache
def fields(config: Config, opcode: Opcode) -> tuple[BitField, ...]:
    """Return an instruction's fields, opcode first, without unused bits."""
    first, second = _WORDS[opcode](config)
    return (*_place_fields(0, (*_FLAGS, *first)), *_place_fields(_SECOND_WORD, second))


@lru_cache
def uop_fields(config: Config) -> tuple[BitField, ...]:
    """Return the fields of a micro-op, without gaps."""
    # VTAUop of hw_spec.h.
    depths = (("dst_idx", MemoryType.ACC), ("src_idx", MemoryType.INP), ("wgt_idx", MemoryType.WGT))
    return tuple(_place_fields(0, tuple((name, config.log_depth(memory)) for name, memory in depths)))


_Widths = tuple[tuple[str, int], ...]


def _place_fields(start: int, widths: _Widths) -> Iterator[BitField]:
    for name, width in widths:
        yield BitField(name, start, width, has_sign=name == "imm")
        start += width


def _transfer(config: Config) -> tuple[_Widths, _Widths]:
    # Version 0.0.2 has a third bit, for ACC_8BIT.
    kind = 2 if config.hw_ver == "0.0.1" else 3
    # VTA_MEMOP_SIZE_BIT_WIDTH, _STRIDE_BIT_WIDTH and _PAD_BIT_WIDTH of hw_spec_const.h.
    sizes = (("y_size", 16), ("x_size", 16), ("x_stride", 16))
    pads = (("y_pad_0", 4), ("y_pad_1", 4), ("x_pad_0", 4), ("x_pad_1", 4))
    return (("memory_type", kind), ("sram_base", 16), ("dram_base", 32)), (*sizes, *pads)


def _loops(config: Config) -> _Widths:
    uop = config.log_depth(MemoryType.UOP)
    # The end may be the depth itself, and needs a bit more.
    return (("reset_reg", 1), ("uop_bgn", uop), ("uop_end", uop + 1), ("iter_out", 14), ("iter_in", 14))


def _factors(name: str, width: int) -> _Widths:
    return ((f"{name}_factor_out", width), (f"{name}_factor_in", width))


def _gemm(config: Config) -> tuple[_Widths, _Widths]:
    acc, inp, wgt = (config.log_depth(memory) for memory in (MemoryType.ACC, MemoryType.INP, MemoryType.WGT))
    return _loops(config), (*_factors("dst", acc), *_factors("src", inp), *_factors("wgt", wgt))


def _alu(config: Config) -> tuple[_Widths, _Widths]:
    acc = config.log_depth(MemoryType.ACC)
    # Version 0.0.2 has a third bit, for MUL; VTA_ALUOP_IMM_BIT_WIDTH is 16.
    operation = (("alu_opcode", 2 if config.hw_ver == "0.0.1" else 3), ("use_imm", 1), ("imm", 16))
    # Both operands of ALU are in ACC.
    return _loops(config), (*_factors("dst", acc), *_factors("src", acc), *operation)


def _finish(_config: Config) -> tuple[_Widths, _Widths]:
    return (), ()


_WORDS = {
    Opcode.LOAD: _transfer,
    Opcode.STORE: _transfer,
    Opcode.GEMM: _gemm,
    Opcode.ALU: _alu,
    Opcode.FINISH: _finish,
}
