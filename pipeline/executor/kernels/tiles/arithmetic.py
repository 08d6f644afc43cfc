"""Products of numbers and of bytes: a convolution's innermost statement on a machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tvm import tirx

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tir import statements as tir

BYTES = 4
"""That are multiplied and added up at once; they count as one int32."""

# The highest bit of each byte: flipped, a uint8 is an int8 less by 128, and AArch64's `sdot` takes no other.
_SIGN = 0x80808080 - (1 << 32)


class Arithmetic(NamedTuple):
    """Elements of vectors, and what becomes of them.

    Attributes
    ----------
    dtype : str
    add : callable
        From a sum, an element in all lanes, a vector of weights, and their lanes to the new sum.
    prepare : callable
        From elements as they lie in memory, one or a vector of so many lanes, to factors.
    by_lanes : bool
        Whether elements are loaded a vector at a time, each of whose lanes is a factor.
    """

    dtype: str
    add: Callable[[Any, Any, Any, int], Any]
    prepare: Callable[[Any, int], Any] = lambda elements, _: elements
    by_lanes: bool = False


def of(dtype: str, cpu: Microarchitecture) -> Arithmetic:
    """Return the arithmetic for data of `dtype`: float32, or uint8 in fours, with int8 weights in fours."""
    by_lanes = cpu.lane_products
    if dtype == "float32":
        # LLVM makes a fused multiply-add of it, as TVM lets it contract.
        return Arithmetic(dtype, lambda total, element, weights, _: total + element * weights, by_lanes=by_lanes)
    if cpu.dots == "sdot":
        return Arithmetic("int32", _sdot, _flip_signs, by_lanes)
    products = {"vnni": _vnni, "pairs": _pairs, "usdot": _usdot, "plain": _plain}
    return Arithmetic("int32", products[cpu.dots], by_lanes=by_lanes and cpu.dots == "usdot")


def widen_weights(weights: Any, dtype: str, lanes: int) -> Any:
    """Return a vector of weights stored as `dtype` as the products need it; see `packing.stored`."""
    if dtype == "float16":
        return weights.astype(f"float32x{lanes}")
    if dtype == "uint16":
        # The upper half of a float32.
        sixteen = tir.vector(tirx.const(16, "uint32"), lanes)
        return tirx.reinterpret(f"float32x{lanes}", tirx.shift_left(weights.astype(f"uint32x{lanes}"), sixteen))
    return weights


def offset(cpu: Microarchitecture) -> int:
    """Return the number that the machine's products subtract from each unsigned byte first."""
    return 128 if cpu.dots == "sdot" else 0


def _vnni(total: Any, data: Any, weights: Any, lanes: int) -> Any:
    a, b = (tirx.reinterpret(f"int8x{lanes * BYTES}", each) for each in (data, weights))
    # Four products of an unsigned and a signed byte, added to an int32 without an overflow between.
    return tirx.call_llvm_pure_intrin(f"int32x{lanes}", f"llvm.x86.avx512.vpdpbusd.{lanes * 32}", total, a, b)


def _flip_signs(data: Any, lanes: int) -> Any:
    return data ^ tir.wide(tirx.IntImm("int32", _SIGN), lanes)


def _sdot(total: Any, data: Any, weights: Any, _: int) -> Any:
    # Weights first: the second operand may be one lane of a vector.
    a, b = (tirx.reinterpret("int8x16", each) for each in (weights, data))
    return tirx.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.sdot.v4i32.v16i8", total, a, b)


def _usdot(total: Any, data: Any, weights: Any, _: int) -> Any:
    a, b = (tirx.reinterpret("int8x16", each) for each in (data, weights))
    return tirx.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.usdot.v4i32.v16i8", total, a, b)


def _pairs(total: Any, data: Any, weights: Any, lanes: int) -> Any:
    """Multiply the even bytes and the odd ones, each as 16 bits: pairs of 8 bits would saturate."""
    name = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}[lanes]
    eight = tir.vector(tirx.IntImm("int16", 8), 2 * lanes)
    # Data are unsigned, so a mask is enough for them.
    low = tir.vector(tirx.IntImm("int32", 0x00FF00FF), lanes)
    words = tirx.reinterpret(f"int16x{2 * lanes}", weights)
    # Up and down again: the sign of the lower byte fills the upper one.
    even = tirx.shift_right(tirx.shift_left(words, eight), eight)
    pairs = ((data & low, even), (tirx.shift_right(data, tir.vector(tirx.IntImm("int32", 8), lanes)) & low,
              tirx.shift_right(words, eight)))  # fmt: skip
    for bytes_, factors in pairs:
        spread = tirx.reinterpret(f"int16x{2 * lanes}", bytes_)
        total = total + tirx.call_llvm_pure_intrin(f"int32x{lanes}", name, spread, factors)
    return total


def _plain(total: Any, data: Any, weights: Any, lanes: int) -> Any:
    for index in range(BYTES):
        # Byte by byte as int32; slow, but on every processor.
        a = tirx.shift_right(data, _all(8 * index, lanes)) & _all(255, lanes)
        b = tirx.shift_right(tirx.shift_left(weights, _all(24 - 8 * index, lanes)), _all(24, lanes))
        total = total + a * b
    return total


def _all(value: int, lanes: int) -> Any:
    return tir.vector(tirx.IntImm("int32", value), lanes)
