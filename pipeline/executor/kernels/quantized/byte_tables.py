"""Byte tables: functions of one byte, looked up in 256 results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from tvm import relax, tirx
from tvm.ir import GenericConst

from pipeline.executor.kernels.anchor import FusedGroup
from pipeline.executor.kernels.kernel import MEMORY_BOUND, Kernel
from pipeline.executor.kernels.layout.expressions import constant, extents, is_image, is_static, name_of
from pipeline.executor.kernels.layout.rewriter import ModelLayout, Rewriter
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.model.passes import numpy_rules
from pipeline.model.passes.bindings import replace
from pipeline.model.requantization import Requantization
from pipeline.tvm import statements as tir

_BYTES = {"int8", "uint8"}
_COUNT = 256
# Bytes per instruction: a look-up among 128 in two registers.
_LANES, _LOOK_UP = 64, "llvm.x86.avx512.vpermi2var.qi.512"
# Results of some rows wait in the first-level cache for what is fused in.
_LARGEST_ROW = 1 << 14


class _ByteFunction(NamedTuple):
    """Results of all values of the bytes `source`, from the lowest on."""

    source: Any
    results: np.ndarray
    looks_up: bool = False


@dataclass(frozen=True)
class ByteTableForm:
    """Shape of bytes, and the dtype of results."""

    shape: tuple[int, ...]
    dtype: str


class ByteTable(Kernel[ByteTableForm]):
    """Table of a byte's function, such as a SiLU of sigmoid and product."""

    name = "byte_table"
    operators = frozenset({"add", "astype", "call_tir", "multiply", "subtract", "take"})
    form = ByteTableForm
    effort = MEMORY_BOUND

    def match(self, rewriter: Rewriter, call: Any) -> Any:
        """Match bytes that follow from other bytes through a table."""
        function = self._function(rewriter, call)
        # Arithmetic alone is fused into the kernel before it, which a table is not.
        if function is None or not function.looks_up or str(call.ty.dtype) not in _BYTES:
            return None
        source, is_last = function.source, rewriter.is_last(function.source)
        data = rewriter.last(source) if is_last else rewriter.plain(source)
        form = ByteTableForm(extents(data.ty), str(call.ty.dtype))
        if not math.prod(form.shape) or not form.shape or form.shape[-1] > _LARGEST_ROW:
            return None
        # By their bits, with negative numbers behind the others.
        results = np.roll(function.results, _COUNT // 2 if str(source.ty.dtype) == "int8" else 0)
        value = self.placeholder(rewriter.builder, form, [data, constant(results)], form.shape, form.dtype)
        return ModelLayout(value) if is_image(call.ty) and not is_last else value

    def _function(self, rewriter: Rewriter, call: Any) -> _ByteFunction | None:
        """Return the function of a call, kept for calls that continue it."""
        if call not in rewriter.intermediates:
            rewriter.intermediates[call] = self._apply(rewriter, call)
        function: _ByteFunction | None = rewriter.intermediates[call]
        return function

    def _apply(self, rewriter: Rewriter, call: Any) -> _ByteFunction | None:
        """Compute a call of byte functions of one source for all bytes."""
        variables = [number for number in _numbers(call) if isinstance(number, relax.Var)]
        functions = [self._operand(rewriter, variable) for variable in variables]
        known = [function for function in functions if function is not None]
        if not known or len(known) < len(functions) or not _is_same(call, [function.source for function in known]):
            return None
        constants = [relax.const(function.results) for function in known]
        values = dict(zip(variables, constants, strict=True))
        results = numpy_rules.evaluate(replace(call, lambda node: values.get(node, node)))
        if results is None or results.size != _COUNT:
            return None
        looks_up = name_of(call) == "take" or any(function.looks_up for function in known)
        return _ByteFunction(known[0].source, results.reshape(-1).astype(str(call.ty.dtype)), looks_up)

    def _operand(self, rewriter: Rewriter, value: Any) -> _ByteFunction | None:
        """Return an operand's function; bytes that are none are their own."""
        producer = rewriter.producer(value, *self.operators)
        function = None if producer is None else self._function(rewriter, producer)
        if function is not None or str(value.ty.dtype) not in _BYTES:
            return function
        limits = np.iinfo(str(value.ty.dtype))
        return _ByteFunction(value, np.arange(limits.min, limits.max + 1).astype(limits.dtype))

    def write(self, group: FusedGroup, form: ByteTableForm, cpu: Microarchitecture, tasks: int) -> Any:
        """Return the loops over rows: look-ups, then what is fused in."""
        split = _split(form.shape)
        outer, inner = form.shape[:split], form.shape[split:]
        length, size = math.prod(inner), math.prod(form.shape)
        is_wide = cpu.looks_up_bytes and length >= _LANES
        kinds = ("int8", "int8") if is_wide else ("uint8", form.dtype)
        views = zip(group.operands, ("bytes", "table"), (size, _COUNT), kinds, strict=True)
        (source, declare_source), (table, declare_table) = (tir.flat(*view) for view in views)
        look_up = _look_up_vectors if is_wide else _look_up_elements

        def row(index: Any) -> Any:
            results = tir.buffer("results", [length], form.dtype)
            starts = tir.unravel(index, outer)

            def along(indices: list[Any], offset: Any) -> Any:
                axis = len(indices) - len(outer)
                if axis + 1 < len(inner):
                    step = math.prod(inner[axis + 1 :])
                    return tir.loop("axis", inner[axis], lambda i: along([*indices, i], offset + i * step))

                def store(first: Any, count: int) -> Any:
                    return tir.loop("lane", count, lambda lane: group.store(
                        tir.load(results, offset + first + lane), [*indices, first + lane]
                    ), tir.VECTORIZED)  # fmt: skip

                return tir.run(inner[-1], _LANES, store)

            statements = look_up(source, table, results, index * length, length)
            return tir.sequence([tirx.AllocBuffer(results), *statements, along(starts, tir.number(0))])

        rows = tir.loop("row", math.prod(outer), row, tir.parallel(tasks))
        return tir.sequence([declare_source, declare_table, rows])

    def operations(self, form: ByteTableForm) -> int:
        """Count one for each byte."""
        return math.prod(form.shape)


def _numbers(call: Any) -> list[Any]:
    """Return the operands that a result's elements follow from one by one; none if there are others."""
    numbers = list(call.args)
    if name_of(call) == "call_tir":
        requantization = Requantization.of(call)
        numbers = [] if requantization is None or len(requantization.mantissa) > 1 else [call.args[1].fields[0]]
    elif name_of(call) == "take":
        table, axis = numbers.pop(0), call.attrs.axis
        if not isinstance(table, GenericConst) or table.ty.ndim != 1 or axis is None:
            return []
    is_single = all(number.value.numpy().size == 1 for number in numbers if isinstance(number, GenericConst))
    return numbers if is_single else []


def _is_same(call: Any, sources: list[Any]) -> bool:
    """Test for integers, from one source of their shape."""
    source = sources[0]
    if not all(other.same_as(source) for other in sources) or not is_static(call, source):
        return False
    # Real numbers may be rounded otherwise where a processor fuses products and sums.
    return "int" in str(call.ty.dtype) and extents(call.ty) == extents(source.ty)


def _split(shape: tuple[int, ...]) -> int:
    """Return the first axis of the shortest rows that fill a vector."""
    sizes = [math.prod(shape[axis:]) for axis in range(len(shape))]
    fitting = [axis for axis, size in enumerate(sizes) if size <= _LARGEST_ROW]
    return next((axis for axis in reversed(fitting) if sizes[axis] >= 4 * _LANES), fitting[0])


def _look_up_elements(source: Any, table: Any, results: Any, start: Any, length: int) -> list[Any]:
    def element(index: Any) -> Any:
        place = tir.load(source, start + index).astype("int64")
        return tir.store(results, tir.load(table, place), index)

    return [tir.loop("byte", length, element)]


def _look_up_vectors(source: Any, table: Any, results: Any, start: Any, length: int) -> list[Any]:
    """Look up 64 bytes at once, twice among 128, by seven bits; the eighth chooses."""
    kind = f"int8x{_LANES}"
    parts, bindings = tir.bind_values(
        "entries", [tir.load(table, tir.ramp(tir.number(first), _LANES)) for first in range(0, _COUNT, _LANES)], kind
    )

    def piece(index: Any) -> Any:
        first = tir.piece_start(index, _LANES, length)
        (places,), loads = tir.bind_values("places", [tir.load(source, tir.ramp(start + first, _LANES))], kind)
        lower, upper = (
            tirx.call_llvm_pure_intrin(kind, _LOOK_UP, parts[half], places, parts[half + 1]) for half in (0, 2)
        )
        value = tirx.Select(places < tir.vector(tirx.IntImm("int8", 0), _LANES), upper, lower)
        result = tirx.reinterpret(f"{results.dtype}x{_LANES}", value)
        return tir.sequence([*loads, tir.store(results, result, tir.ramp(first, _LANES))])

    return [*bindings, tir.loop("piece", -(-length // _LANES), piece)]
