"""Instructions and micro-op, as immutable values with the hardware's fields."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from boards.vta.isa.config import MemoryType


class Opcode(IntEnum):
    """The kinds of instructions, by VTA_OPCODE_* of hw_spec.h."""

    LOAD = 0
    STORE = 1
    GEMM = 2
    FINISH = 3
    ALU = 4


class AluOpcode(IntEnum):
    """Operations of an ALU instruction; boards lack MUL."""

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3
    # `alu` of vta.cc has no branch for it, and writes ACC back as it was.
    MUL = 4


class HardwareModule(IntEnum):
    """Modules of the accelerator, in the order of the dataflow."""

    LOAD = 0
    COMPUTE = 1
    STORE = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Instruction:
    """Dependence flags of every instruction.

    Attributes
    ----------
    pop_prev, pop_next : bool
        Wait for, and take, a token of the module before or behind.
    push_prev, push_next : bool
        Give it a token in the end.
    """

    opcode: ClassVar[Opcode]

    # In the order of their bits in VTAGenericInsn, behind the opcode.
    pop_prev: bool = False
    pop_next: bool = False
    push_prev: bool = False
    push_next: bool = False

    @property
    def module(self) -> HardwareModule:
        """The executing module."""
        return HardwareModule.COMPUTE


@dataclass(frozen=True, kw_only=True, slots=True)
class _Transfer(Instruction):
    """Between DRAM and a scratchpad, in elements.

    Attributes
    ----------
    memory_type : MemoryType
        The scratchpad.
    sram_base, dram_base : int
        First element there and in DRAM.
    y_size, x_size : int
        Rows, and elements of a row.
    x_stride : int
        Distance from the start of a row in DRAM to that of the next.
    y_pad_0, y_pad_1, x_pad_0, x_pad_1 : int
        Rows of zeros above and below, elements of zeros left and right of each row.
    """

    # In the order of VTAMemInsn in hw_spec.h.
    memory_type: MemoryType
    sram_base: int = 0
    dram_base: int = 0
    y_size: int = 0
    x_size: int = 0
    x_stride: int = 0
    y_pad_0: int = 0
    y_pad_1: int = 0
    x_pad_0: int = 0
    x_pad_1: int = 0

    @property
    def width(self) -> int:
        """Elements of a row in the scratchpad."""
        return self.x_pad_0 + self.x_size + self.x_pad_1

    @property
    def height(self) -> int:
        """Rows in the scratchpad."""
        return self.y_pad_0 + self.y_size + self.y_pad_1

    @property
    def padded(self) -> bool:
        """True if there is any padding."""
        return bool(self.y_pad_0 or self.y_pad_1 or self.x_pad_0 or self.x_pad_1)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadInstruction(_Transfer):
    """Transfer from DRAM to a scratchpad; without elements, it only passes tokens."""

    opcode: ClassVar[Opcode] = Opcode.LOAD

    @property
    def module(self) -> HardwareModule:
        """The executing module."""
        # As fetch in vta.cc routes them: micro-ops and sums belong to compute, which alone uses them.
        return HardwareModule.LOAD if self.memory_type in (MemoryType.INP, MemoryType.WGT) else HardwareModule.COMPUTE


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreInstruction(_Transfer):
    """Transfer from OUT to DRAM; without elements, it only passes tokens."""

    opcode: ClassVar[Opcode] = Opcode.STORE
    memory_type: MemoryType = MemoryType.OUT

    @property
    def module(self) -> HardwareModule:
        """The executing module."""
        return HardwareModule.STORE


@dataclass(frozen=True, kw_only=True, slots=True)
class _Loops(Instruction):
    """Micro-ops inside of two loops.

    Attributes
    ----------
    reset_reg : bool
        True sets ACC to 0 instead; only GEMM heeds it.
    uop_bgn, uop_end : int
        The micro-ops, without that at `uop_end`.
    iter_out, iter_in : int
        Iterations of the loops.
    dst_factor_out, dst_factor_in, src_factor_out, src_factor_in : int
        Increments of an index in each turn of a loop.
    """

    reset_reg: bool = False
    uop_bgn: int
    uop_end: int
    iter_out: int = 1
    iter_in: int = 1
    dst_factor_out: int = 0
    dst_factor_in: int = 0
    src_factor_out: int = 0
    src_factor_in: int = 0

    @property
    def count(self) -> int:
        """Micro-ops executed, in all turns."""
        # As the loop `upc < uop_end` of vta.cc: an end before the beginning is no micro-op at all.
        return self.iter_out * self.iter_in * max(0, self.uop_end - self.uop_bgn)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gemm(_Loops):
    """ACC[dst] += INP[src] x transposed WGT[wgt], or 0.

    Attributes
    ----------
    wgt_factor_out, wgt_factor_in : int
        Increments of the index of the weights in each turn of a loop.
    """

    opcode: ClassVar[Opcode] = Opcode.GEMM

    wgt_factor_out: int = 0
    wgt_factor_in: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Alu(_Loops):
    """ACC[dst] = ACC[dst] `alu_opcode` (immediate or ACC[src]).

    Attributes
    ----------
    alu_opcode : AluOpcode
        Operation.
    use_imm : bool
        True if the second operand is `imm`.
    imm : int
        A number of 16 bits with sign.
    """

    opcode: ClassVar[Opcode] = Opcode.ALU

    alu_opcode: AluOpcode
    use_imm: bool = False
    imm: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Finish(Instruction):
    """Signals the end to the host."""

    opcode: ClassVar[Opcode] = Opcode.FINISH


@dataclass(frozen=True, slots=True)
class Uop:
    """A micro-op: the indices of one step.

    Attributes
    ----------
    dst_idx : int
        Index in ACC.
    src_idx : int
        Index in INP (GEMM) or ACC (ALU).
    wgt_idx : int
        Index in WGT (GEMM only).
    """

    dst_idx: int
    src_idx: int = 0
    wgt_idx: int = 0
