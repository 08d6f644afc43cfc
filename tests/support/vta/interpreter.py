"""GEMM and ALU one micro-op and one number at a time, as the specification words them; slow, and easy to believe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from boards.vta.isa.instructions import Alu, AluOpcode, Gemm, Uop

Accumulators = npt.NDArray[np.int64]


def execute(
    instruction: Gemm | Alu,
    uops: Sequence[Uop],
    acc: Accumulators,
    inp: npt.NDArray[np.int64],
    wgt: npt.NDArray[np.int64],
) -> None:
    """Change ``acc[n, batch, block]`` as an instruction does."""
    for dst, src, weight in steps(instruction, uops):
        if isinstance(instruction, Alu):
            operand = np.full_like(acc[dst], instruction.imm) if instruction.use_imm else acc[src]
            acc[dst] = wrap_int32(alu(instruction.alu_opcode, acc[dst], operand))
        elif instruction.reset_reg:
            acc[dst] = 0
        else:
            acc[dst] = wrap_int32(acc[dst] + inp[src] @ wgt[weight].T)


def steps(instruction: Gemm | Alu, uops: Sequence[Uop]) -> Iterator[tuple[int, int, int]]:
    for outer_turn in range(instruction.iter_out):
        for inner_turn in range(instruction.iter_in):
            for uop in uops[instruction.uop_bgn : instruction.uop_end]:
                weight = 0
                if isinstance(instruction, Gemm):
                    weight = (
                        uop.wgt_idx + outer_turn * instruction.wgt_factor_out + inner_turn * instruction.wgt_factor_in
                    )
                yield (
                    uop.dst_idx + outer_turn * instruction.dst_factor_out + inner_turn * instruction.dst_factor_in,
                    uop.src_idx + outer_turn * instruction.src_factor_out + inner_turn * instruction.src_factor_in,
                    weight,
                )


def alu(opcode: AluOpcode, augend: Accumulators, addend: Accumulators) -> Accumulators:
    if opcode is AluOpcode.SHR:
        pairs = zip(augend.ravel().tolist(), addend.ravel().tolist(), strict=True)
        # Of Python's own integers, whose shifts have no limit; what is shifted out of 32 bits is cut afterwards.
        shifted_values = [x >> y if y >= 0 else (x << min(-y, 32)) for x, y in pairs]
        return np.array(shifted_values, np.int64).reshape(augend.shape)
    operations = {
        AluOpcode.MIN: np.minimum,
        AluOpcode.MAX: np.maximum,
        AluOpcode.ADD: np.add,
        AluOpcode.MUL: multiply_int32,
    }
    return operations[opcode](augend, addend)  # type: ignore[operator,no-any-return]


def multiply_int32(multiplicand: Accumulators, multiplier: Accumulators) -> Accumulators:
    product = multiplicand.astype(object) * multiplier.astype(object)
    return np.array(product & 0xFFFFFFFF, np.int64)


def wrap_int32(values: Accumulators) -> Accumulators:
    """Return values modulo 2^32, as numbers with sign."""
    return (values + 2**31) % 2**32 - 2**31
