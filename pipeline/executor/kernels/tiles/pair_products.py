"""Products of bfloat16 in pairs, summed in float32, per processor kind."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.ir import StringImm

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.tvm import statements as tir

PAIR = 2
"""Numbers multiplied and added at once, counted as one of 32 bits."""

ARITHMETIC = "bfloat16"
"""Their name in a build's arithmetic."""


def multiple(cpu: Microarchitecture) -> int:
    """Return what a group's channels are padded to a multiple of."""
    # A matrix has rows of four numbers.
    return 2 * PAIR if cpu.pairs == "bfmmla" else PAIR


# TVM has no vectors of bfloat16, so that what takes them is written in LLVM's language.
_FUNCTION = """
declare {sums} @{name}({sums}, {halves}, {halves})

define linkonce_odr hidden {sums} @soc_pairs({sums} %sum, {pairs} %a, {pairs} %b) alwaysinline {{
  %data = bitcast {pairs} %a to {halves}
  %weights = bitcast {pairs} %b to {halves}
  %result = call {sums} @{name}({sums} %sum, {halves} %data, {halves} %weights)
  ret {sums} %result
}}
"""

WAYS = {"avx512": ("llvm.x86.avx512bf16.dpbf16ps.512", 16), "bfmmla": ("llvm.aarch64.neon.bfmmla", 4)}
"""Products by vectors, by their name in a layout: LLVM's intrinsic, and lanes of its sums."""


def add(total: Any, data: Any, weights: Any, lanes: int) -> Any:
    """Add two products in each lane; of matrices, those of two pixels with two channels."""
    return tirx.call_extern(f"float32x{lanes}", "soc_pairs", total, data, weights)


def define(way: str, statement: Any) -> Any:
    """Return a statement with the definition of `add`."""
    name, lanes = WAYS[way]
    types = {"sums": f"<{lanes} x float>", "pairs": f"<{lanes} x i32>", "halves": f"<{PAIR * lanes} x bfloat>"}
    code = _FUNCTION.format(name=name, **types)
    return tirx.AttrStmt(tirx.IntImm("int32", 0), "pragma_import_llvm", StringImm(code), statement)


def _rounded_bits(number: Any, lanes: int) -> Any:
    """Return float32 whose upper 16 bits are rounded to bfloat16; the lower ones mean nothing."""
    sixteen, half, one = (tir.wide(tirx.const(value, "uint32"), lanes) for value in (16, 0x7FFF, 1))
    bits = tirx.reinterpret(tir.lanewise("uint32", lanes), number)
    # A tie goes to the even number.
    return bits + half + tirx.bitwise_and(tirx.shift_right(bits, sixteen), one)


def round_number(number: Any, lanes: int) -> Any:
    """Return float32 rounded to bfloat16, as float32."""
    mask = tir.wide(tirx.const(0xFFFF0000, "uint32"), lanes)
    return tirx.reinterpret(f"float32x{lanes}", tirx.bitwise_and(_rounded_bits(number, lanes), mask))


def round_pairs(numbers: Any, lanes: int) -> Any:
    """Return adjacent numbers of float32 as pairs of bfloat16."""
    upper = tirx.shift_right(_rounded_bits(numbers, lanes), tir.vector(tirx.const(16, "uint32"), lanes))
    return tirx.reinterpret(tir.lanewise("int32", lanes // PAIR), upper.astype(f"uint16x{lanes}"))


def join_rows(rows: Sequence[Any], lanes: int) -> Any:
    """Return pairs of the elements of two vectors of float32; of one, with zeros."""
    sixteen, mask = (tir.wide(tirx.const(value, "uint32"), lanes) for value in (16, 0xFFFF0000))
    bits = [_rounded_bits(row, lanes) for row in rows]
    upper = [tirx.bitwise_and(row, mask) for row in bits[1:]]
    pairs = functools.reduce(tirx.bitwise_or, upper, tirx.shift_right(bits[0], sixteen))
    return tirx.reinterpret(tir.lanewise("int32", lanes), pairs)
