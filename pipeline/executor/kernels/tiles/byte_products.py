"""Products of bytes in fours, per processor kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import tirx

from pipeline.executor.kernels.microarchitecture import KIB, Microarchitecture
from pipeline.executor.kernels.tiles.conv_shape import ConvShape
from pipeline.tvm import statements as tir

BYTES = 4
"""Bytes multiplied and added at once, counted as one int32."""

# The highest bit of each byte: flipped, a uint8 is an int8 less by 128, and AArch64 multiplies no other ones.
_SIGNS = 0x80808080 - (1 << 32)
_SIGNED = frozenset({"sdot", "mlal"})
_LOWEST = -128
# Fewest products of fours per pixel, group and line of the kernel in a matrix tile.
_FEWEST = 128


def offset(cpu: Microarchitecture) -> int:
    """Return the machine's offset of unsigned bytes."""
    return 128 if cpu.dots in _SIGNED else 0


def choose(conv: ConvShape, weights: np.ndarray, cpu: Microarchitecture) -> str:
    """Choose the byte products for weights (out, kh, kw, in): `WAYS`, ``"mmla"`` or ``"amx"``."""
    if cpu.dots == "mlal":
        fours = np.pad(weights, [(0, 0)] * 3 + [(0, -weights.shape[-1] % BYTES)]).reshape(-1, 2, BYTES // 2)
        # Where two products that are added up in 16 bits may be too large.
        return "mlal_single" if (fours == _LOWEST).all(1).any() else "mlal"
    if cpu.dots == "mmla":
        # A matrix has two rows of pixels, of eight channels each.
        waste = -conv.depth % (2 * BYTES) - -conv.depth % BYTES
        return "mmla" if conv.out_height * conv.out_width > 1 and waste * 4 <= conv.depth else "usdot"
    if cpu.dots == "amx":
        # Of one pixel, memory sets the pace; tiles that are nearly empty take as long as full ones.
        products = -(-conv.depth // BYTES) * conv.kernel[1] * conv.group_outputs
        return "amx" if conv.out_height * conv.out_width > 1 and products >= _FEWEST else "vnni"
    return cpu.dots


def channels(way: str) -> int:
    """Return the channel padding's multiple."""
    return 2 * BYTES if way == "mmla" else BYTES


def order_bytes(blocks: np.ndarray, way: str) -> np.ndarray:
    """Order packed bytes in fours, or pairs, for a way; last axes (term, lane)."""
    if way.startswith("mlal"):
        # The first two bytes of all lanes, then the other two: each half of a vector meets two bytes of data.
        halves = blocks.view(np.int16).reshape(*blocks.shape[:-1], -1, 4, 2).swapaxes(-1, -2)
        return np.ascontiguousarray(halves).reshape(-1).view(np.int32)
    if way.endswith("mmla"):
        # Two terms of two lanes are one vector: terms (pairs, 2), lanes (vectors, halves, 2).
        quarters = blocks.reshape(*blocks.shape[:-2], blocks.shape[-2] // 2, 2, -1, 2, 2)
        return np.ascontiguousarray(np.moveaxis(quarters, (-2, -3, -1, -4), (-4, -3, -2, -1))).reshape(-1)
    return blocks


def for_tiles(cpu: Microarchitecture) -> Microarchitecture:
    """Return the machine with registers left for tiles and operands."""
    # Sums of 16 bits on their way, data that are spread over vectors, and where their bytes go; rows of matrices.
    registers = cpu.registers - {"mlal": 12, "mmla": 4}.get(cpu.dots, 0)
    # LLVM orders the loads of these.  Floats' times are none of theirs, and tiles for larger ways would be wider than
    # the vectors that their pixels share.
    return replace(cpu, registers=registers, in_order=False, ports=2, latency=4.0, way_bytes=4 * KIB)


def _vnni(total: Any, data: Any, weights: Any, lanes: int) -> Any:
    a, b = (tirx.reinterpret(f"int8x{lanes * BYTES}", value) for value in (data, weights))
    # Four products of an unsigned and a signed byte, added to an int32 without an overflow between.
    return tirx.call_llvm_pure_intrin(f"int32x{lanes}", f"llvm.x86.avx512.vpdpbusd.{lanes * 32}", total, a, b)


def flip_signs(data: Any, lanes: int) -> Any:
    """Turn unsigned bytes in fours to signed, less 128."""
    return data ^ tir.wide(tirx.IntImm("int32", _SIGNS), lanes)


def _sdot(total: Any, data: Any, weights: Any, _: int) -> Any:
    # Weights first: the second operand may be one lane of a vector.
    a, b = (tirx.reinterpret("int8x16", value) for value in (weights, data))
    return tirx.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.sdot.v4i32.v16i8", total, a, b)


def _mlal(total: Any, data: Any, weights: Any, _: int) -> Any:
    lower, upper = _halves_of_products(data, weights)
    return total + _add_pairs(lower + upper)


def _mlal_single(total: Any, data: Any, weights: Any, _: int) -> Any:
    lower, upper = _halves_of_products(data, weights)
    return total + _add_pairs(lower) + _add_pairs(upper)


def _add_pairs(products: Any) -> Any:
    return tirx.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.saddlp.v4i32.v8i16", products)


def _halves_of_products(data: Any, weights: Any) -> list[Any]:
    """Multiply in 16 bits: first and last two bytes of four."""
    spread, factors = _spread(data), tirx.reinterpret("int8x16", weights)
    return [
        tirx.call_llvm_pure_intrin(
            "int16x8", "llvm.aarch64.neon.smull.v8i16", *(_half(value, index) for value in (factors, spread))
        )
        for index in range(2)
    ]


def _spread(data: Any) -> Any:
    """Spread four bytes: two in the lower half, two in the upper."""
    element = data.value
    is_lane = isinstance(element, tirx.Shuffle)
    source, first = (element.vectors[0], BYTES * int(element.indices[0])) if is_lane else (data, 0)
    # One look-up in place of two copies of a lane, and both halves at hand for what multiplies the upper ones.
    order = [tirx.IntImm("int8", first + byte) for byte in (*(0, 1) * 4, *(2, 3) * 4)]
    positions = tirx.Shuffle(order, [tirx.IntImm("int32", lane) for lane in range(16)])
    return tirx.call_llvm_pure_intrin(
        "int8x16", "llvm.aarch64.neon.tbl1.v16i8", tirx.reinterpret("int8x16", source), positions
    )


def _half(value: Any, index: int) -> Any:
    return tirx.Shuffle([value], [tirx.IntImm("int32", 8 * index + lane) for lane in range(8)])


def _usdot(total: Any, data: Any, weights: Any, _: int) -> Any:
    a, b = (tirx.reinterpret("int8x16", value) for value in (data, weights))
    return tirx.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.usdot.v4i32.v16i8", total, a, b)


def _mmla(total: Any, data: Any, weights: Any, _: int) -> Any:
    # Eight bytes of two pixels, times eight of two channels.
    a, b = (tirx.reinterpret("int8x16", value) for value in (data, weights))
    return tirx.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.usmmla.v4i32.v16i8", total, a, b)


def _pairs(total: Any, data: Any, weights: Any, lanes: int) -> Any:
    """Multiply even and odd bytes in 16 bits, since 8-bit pairs saturate."""
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


WAYS: dict[str, Callable[[Any, Any, Any, int], Any]] = {
    "vnni": _vnni, "pairs": _pairs, "usdot": _usdot, "sdot": _sdot, "mlal": _mlal, "mlal_single": _mlal_single,
    "mmla": _mmla, "plain": _plain,
}  # fmt: skip
