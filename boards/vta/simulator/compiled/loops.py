"""Loops: GEMM and ALU in compiled code, in micro-op order."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812 - its usual name

from boards.vta.isa.config import MemoryType
from boards.vta.isa.instructions import AluOpcode
from boards.vta.isa.layout import uop_fields
from boards.vta.simulator.compiled.code import Code, when
from boards.vta.simulator.compiled.table import LOOPS
from pipeline.tvm.statements import lanewise, number, span, wide

_CHAINS = 4
"""Chains of multiply-adds in one sum. Several hide the cycles of waiting for the one before."""


def gemm(code: Code) -> None:
    """Write a multiplying GEMM."""
    with _micro_ops(code, (MemoryType.ACC, MemoryType.INP, MemoryType.WGT)) as (dst, src, wgt):
        code.note(("ACC_written", dst), ("INP_read", src), ("WGT_read", wgt))
        block = code.config.block
        with T.serial(number(0), number(code.config.batch)) as batch:
            for output, lanes in code.vectors(block):
                for begin, terms in code.vectors(block):
                    inputs = src * code.row + batch * block + begin
                    weights = (wgt * block + begin) * block + output
                    products = [
                        wide(code["inp"][inputs + term], lanes) * code["wgt"][span(weights + term * block, lanes)]
                        for term in range(terms)
                    ]
                    # By way of int32: LLVM leaves it undefined what a negative float becomes without sign.
                    sums = T.cast(T.cast(_sum(products), lanewise("int32", lanes)), lanewise("uint32", lanes))
                    target = span(dst * code.row + batch * block + output, lanes)
                    code.store("acc", target, code["acc"][target] + sums)


def reset(code: Code) -> None:
    """Write a resetting GEMM."""
    with _micro_ops(code, (MemoryType.ACC,)) as (dst,):
        code.note(("ACC_written", dst))
        for offset, lanes in code.vectors(code.row):
            zeros = wide(tirx.IntImm("uint32", 0), lanes)
            code.store("acc", span(dst * code.row + offset, lanes), zeros)


def alu(code: Code, opcode: AluOpcode, *, use_imm: bool) -> None:
    """Write an ALU instruction of one kind."""
    (imm,) = code.fields(LOOPS, ["imm"])
    with _micro_ops(code, (MemoryType.ACC,) if use_imm else (MemoryType.ACC, MemoryType.ACC)) as (dst, *sources):
        code.note(("ACC_written", dst))
        for offset, lanes in code.vectors(code.row):
            target = span(dst * code.row + offset, lanes)
            if use_imm:
                operand = wide(T.cast(imm, "int32"), lanes)
            else:
                operand = T.cast(code["acc"][span(sources[0] * code.row + offset, lanes)], lanewise("int32", lanes))
            code.store("acc", target, _combine_operands(opcode, code["acc"][target], operand, lanes))


def _combine_operands(opcode: AluOpcode, augend: Any, operand: Any, lanes: int) -> Any:
    """Combine as `boards.vta.simulator.scratchpads.combine_operands`, a left operand without sign."""
    signed_type, unsigned_type = lanewise("int32", lanes), lanewise("uint32", lanes)
    if opcode is AluOpcode.ADD:
        return augend + T.cast(operand, unsigned_type)
    if opcode is AluOpcode.MUL:
        return augend * T.cast(operand, unsigned_type)
    if opcode is AluOpcode.MIN:
        return T.cast(tirx.min(T.cast(augend, signed_type), operand), unsigned_type)
    if opcode is AluOpcode.MAX:
        return T.cast(tirx.max(T.cast(augend, signed_type), operand), unsigned_type)
    # Sums have no sign here, because LLVM leaves their overflow undefined otherwise; a shift to the right needs it.
    zero, last = (wide(tirx.IntImm("int32", value), lanes) for value in (0, 31))
    shift = tirx.max(tirx.min(operand, last), -last)
    to_the_right = T.cast(T.cast(augend, signed_type) >> tirx.max(shift, zero), unsigned_type)
    to_the_left = augend << T.cast(tirx.max(-shift, zero), unsigned_type)
    # Beyond the last bit, LLVM's own shift means nothing.
    left_result = tirx.Select(operand < -last, wide(tirx.IntImm("uint32", 0), lanes), to_the_left)
    return tirx.Select(operand < zero, left_result, to_the_right)


@contextmanager
def _micro_ops(code: Code, memories: tuple[MemoryType, ...]) -> Iterator[list[Any]]:
    """Emit the body per micro-op and turn; fail on indices outside."""
    begin, end, outer_turns, inner_turns, *factors, _ = code.fields(LOOPS, LOOPS)
    # For each index its factor of the outer and of the inner loop; a kind uses the first of them.
    pairs = list(zip(factors[::2], factors[1::2], strict=True))[: len(memories)]
    # All are looked at before one is executed, so that nothing is written outside.
    with T.serial(begin, end) as uop_index:
        # In the last turn, each index is at its largest, since factors have no sign.
        last = [
            base + (outer_turns - 1) * out + (inner_turns - 1) * into
            for base, (out, into) in zip(_bases(code, uop_index), pairs, strict=False)
        ]
        violations = [element >= code.config.depth(memory) for element, memory in zip(last, memories, strict=True)]
        with when(tirx.any(*violations)):
            code.fail()
    with (
        when(code["wrong"][number(0)] == 0),
        T.serial(number(0), outer_turns) as turn,
        T.serial(number(0), inner_turns) as step,
    ):
        offsets = [T.bind(turn * out + step * into) for out, into in pairs]
        with T.serial(begin, end) as uop_index:
            yield [T.bind(base + offset) for base, offset in zip(_bases(code, uop_index), offsets, strict=False)]


def _bases(code: Code, uop_index: Any) -> list[Any]:
    """Return the indices of a micro-op."""
    word = T.bind(code["uop"][uop_index])
    return [
        T.cast((word >> tirx.IntImm("uint32", field.bit)) & tirx.IntImm("uint32", field.high), "int64")
        for field in uop_fields(code.config)
    ]


def _sum(products: list[Any]) -> Any:
    """Sum exactly in a few independent chains of multiply-adds."""
    chains = [functools.reduce(operator.add, products[start::_CHAINS]) for start in range(min(_CHAINS, len(products)))]
    return functools.reduce(operator.add, chains)
