"""Where each field of an instruction lies, by configuration and version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from boards.vta.config import Config, Memory
from boards.vta.instructions import Opcode

_FLAGS = (("opcode", 3), ("pop_prev", 1), ("pop_next", 1), ("push_prev", 1), ("push_next", 1))
_SECOND_WORD = 64


@dataclass(frozen=True)
class Field:
    """The bits of one value, counted from the lowest of 128 (of 32 in a micro-op)."""

    name: str
    bit: int
    width: int
    signed: bool = False

    @property
    def low(self) -> int:
        """The smallest value."""
        return -(1 << self.width - 1) if self.signed else 0

    @property
    def high(self) -> int:
        """The largest value."""
        return (1 << self.width - self.signed) - 1


@lru_cache
def fields(config: Config, opcode: Opcode) -> tuple[Field, ...]:
    """Return the fields of an instruction, beginning with its opcode; the bits between them are unused."""
    first, second = _WORDS[opcode](config)
    return (*_placed(0, (*_FLAGS, *first)), *_placed(_SECOND_WORD, second))


@lru_cache
def uop_fields(config: Config) -> tuple[Field, ...]:
    """Return the fields of a micro-op, which fill it."""
    depths = (("dst_idx", Memory.ACC), ("src_idx", Memory.INP), ("wgt_idx", Memory.WGT))
    return tuple(_placed(0, tuple((name, config.log_depth(memory)) for name, memory in depths)))


_Widths = tuple[tuple[str, int], ...]


def _placed(start: int, widths: _Widths) -> Iterator[Field]:
    for name, width in widths:
        yield Field(name, start, width, signed=name == "imm")
        start += width


def _transfer(config: Config) -> tuple[_Widths, _Widths]:
    kind = 2 if config.hw_ver == "0.0.1" else 3
    sizes = (("y_size", 16), ("x_size", 16), ("x_stride", 16))
    pads = (("y_pad_0", 4), ("y_pad_1", 4), ("x_pad_0", 4), ("x_pad_1", 4))
    return (("memory_type", kind), ("sram_base", 16), ("dram_base", 32)), (*sizes, *pads)


def _loops(config: Config) -> _Widths:
    uop = config.log_depth(Memory.UOP)
    return (("reset_reg", 1), ("uop_bgn", uop), ("uop_end", uop + 1), ("iter_out", 14), ("iter_in", 14))


def _factors(name: str, width: int) -> _Widths:
    return ((f"{name}_factor_out", width), (f"{name}_factor_in", width))


def _gemm(config: Config) -> tuple[_Widths, _Widths]:
    acc, inp, wgt = (config.log_depth(each) for each in (Memory.ACC, Memory.INP, Memory.WGT))
    return _loops(config), (*_factors("dst", acc), *_factors("src", inp), *_factors("wgt", wgt))


def _alu(config: Config) -> tuple[_Widths, _Widths]:
    acc = config.log_depth(Memory.ACC)
    operation = (("alu_opcode", 2 if config.hw_ver == "0.0.1" else 3), ("use_imm", 1), ("imm", 16))
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
