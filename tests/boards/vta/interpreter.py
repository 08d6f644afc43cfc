"""GEMM and ALU one micro-op and one number at a time, as the specification words them; slow, and easy to believe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from boards.vta.instructions import Alu, AluOpcode, Gemm, Uop

Accumulators = npt.NDArray[np.int64]


def execute(
    each: Gemm | Alu,
    uops: Sequence[Uop],
    acc: Accumulators,
    inp: npt.NDArray[np.int64],
    wgt: npt.NDArray[np.int64],
) -> None:
    """Change ``acc[n, batch, block]`` as an instruction does."""
    for dst, src, weight in steps(each, uops):
        if isinstance(each, Alu):
            right = np.full_like(acc[dst], each.imm) if each.use_imm else acc[src]
            acc[dst] = wrapped(alu(each.alu_opcode, acc[dst], right))
        elif each.reset_reg:
            acc[dst] = 0
        else:
            acc[dst] = wrapped(acc[dst] + inp[src] @ wgt[weight].T)


def steps(each: Gemm | Alu, uops: Sequence[Uop]) -> Iterator[tuple[int, int, int]]:
    for outer in range(each.iter_out):
        for inner in range(each.iter_in):
            for uop in uops[each.uop_bgn : each.uop_end]:
                weight = 0
                if isinstance(each, Gemm):
                    weight = uop.wgt_idx + outer * each.wgt_factor_out + inner * each.wgt_factor_in
                yield (
                    uop.dst_idx + outer * each.dst_factor_out + inner * each.dst_factor_in,
                    uop.src_idx + outer * each.src_factor_out + inner * each.src_factor_in,
                    weight,
                )


def alu(opcode: AluOpcode, left: Accumulators, right: Accumulators) -> Accumulators:
    if opcode is AluOpcode.SHR:
        pairs = zip(left.ravel().tolist(), right.ravel().tolist(), strict=True)
        # Of Python's own integers, whose shifts have no limit; what is shifted out of 32 bits is cut afterwards.
        shifted = [x >> y if y >= 0 else (x << min(-y, 32)) for x, y in pairs]
        return np.array(shifted, np.int64).reshape(left.shape)
    operations = {
        AluOpcode.MIN: np.minimum,
        AluOpcode.MAX: np.maximum,
        AluOpcode.ADD: np.add,
        AluOpcode.MUL: multiplied,
    }
    return operations[opcode](left, right)  # type: ignore[operator,no-any-return]


def multiplied(left: Accumulators, right: Accumulators) -> Accumulators:
    product = left.astype(object) * right.astype(object)
    return np.array(product & 0xFFFFFFFF, np.int64)


def wrapped(values: Accumulators) -> Accumulators:
    """Return values modulo 2^32, as numbers with sign."""
    return (values + 2**31) % 2**32 - 2**31
