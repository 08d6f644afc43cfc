"""Products of floats and bytes: a machine's innermost convolution statement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tvm import tirx

from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.executor.kernels.tiles import byte_products, pair_products
from pipeline.tvm import statements as tir


class Arithmetic(NamedTuple):
    """Vector elements and their products."""

    dtype: str
    """Dtype of sums."""
    add: Callable[[Any, Any, Any, int], Any]
    """Function from a sum, an element in all lanes, a vector of weights, and their lanes to the new sum."""
    prepare: Callable[[Any, int], Any] = lambda elements, _: elements
    """Function from elements in memory, one or a vector of so many lanes, to factors."""
    by_lanes: bool = False
    """True if elements are loaded a vector at a time, each of whose lanes is a factor."""
    is_ordered: bool = False
    """True if loads are not to be moved from one vector of elements' products to another's."""
    registers: int = 0
    """Registers of the processor, if it takes loads in written order; else 0."""
    factor: str = "float32"
    """Dtype of factors."""

    @property
    def memory(self) -> str:
        """Dtype of elements as they lie in memory."""
        return "float32" if self.factor == "float16" else self.factor


def of(dtype: str, cpu: Microarchitecture, way: str = "") -> Arithmetic:
    """Return the arithmetic for float32, bfloat16 in pairs, or uint8 in fours by int8.

    `way` is how bytes or pairs are multiplied, if they are (see `byte_products.choose`), or that products are of
    float16.
    """
    by_lanes, registers = cpu.lane_products, cpu.registers if cpu.in_order else 0
    if dtype == "float32":
        # A layout for float32 has no way, and one for float16 has its name.
        kind = way or dtype
        return Arithmetic(kind, _multiply_add, by_lanes=by_lanes, is_ordered=by_lanes, registers=registers, factor=kind)
    if dtype == pair_products.ARITHMETIC:
        return Arithmetic("float32", pair_products.add, by_lanes=by_lanes, factor="int32")
    if byte_products.offset(cpu):
        return Arithmetic("int32", byte_products.WAYS[way], byte_products.flip_signs, by_lanes, factor="int32")
    return Arithmetic("int32", byte_products.WAYS[way], by_lanes=by_lanes and way in {"usdot", "mmla"}, factor="int32")


def _multiply_add(total: Any, element: Any, weights: Any, _: int) -> Any:
    # LLVM makes a fused multiply-add of it, as TVM lets it contract.
    return total + element * weights


def widen_weights(weights: Any, dtype: str, lanes: int) -> Any:
    """Widen a weight vector from storage `dtype`; see `packing.stored`."""
    if dtype == "float16":
        return weights.astype(f"float32x{lanes}")
    if dtype == "uint16":
        # The upper half of a float32.
        sixteen = tir.vector(tirx.const(16, "uint32"), lanes)
        return tirx.reinterpret(f"float32x{lanes}", tirx.shift_left(weights.astype(f"uint32x{lanes}"), sixteen))
    return weights
