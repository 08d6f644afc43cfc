"""Transfers: LOAD and STORE in compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812 - its usual name

from boards.vta.isa.config import MemoryType
from boards.vta.simulator import accesses
from boards.vta.simulator.compiled.code import Code, when
from boards.vta.simulator.compiled.table import TRANSFER, Action
from pipeline.tvm.statements import lanewise, number, span, wide

_ACCESSES = {
    Action.LOAD_UOP: (None, "DRAM_read_by_compute"),
    Action.LOAD_WGT: ("WGT_written", "DRAM_read_by_load"),
    Action.LOAD_INP: ("INP_written", "DRAM_read_by_load"),
    Action.LOAD_ACC: ("ACC_written", "DRAM_read_by_compute"),
    Action.LOAD_ACC_8BIT: ("ACC_written", "DRAM_read_by_compute"),
}
"""Accesses of a LOAD to scratchpad and memory; only compute knows micro-ops."""


def load(code: Code, action: Action) -> None:
    """Write a LOAD: zeros for padding, then rows from memory."""
    base, y_size, x_size, x_stride, pad_top, pad_bottom, pad_left, pad_right, start = code.fields(TRANSFER, TRANSFER)
    sram, dram = _ACCESSES[action]
    write = _WRITERS[action]
    unit, grain_size = code.config.element_bytes(MemoryType(action)), accesses.grain_bytes(code.config)
    width = T.bind(pad_left + x_size + pad_right)
    elements = T.bind((pad_top + y_size + pad_bottom) * width)
    # Whoever loads micro-ops also uses them, so that no other module can interfere.
    if sram is not None:
        with T.serial(number(0), elements) as element:
            code.note((sram, base + element))
    # Where there is any padding, zeros everywhere; the rows below come over them.
    with when(elements > y_size * x_size), T.serial(number(0), elements) as element:
        write(code, base + element, None)
    with T.serial(number(0), y_size) as y:
        _note_memory(
            code, dram, T.bind(start // grain_size + y * x_stride * (unit // grain_size)), x_size * (unit // grain_size)
        )
        target, source = T.bind(base + (pad_top + y) * width + pad_left), T.bind(start + y * x_stride * unit)
        with T.serial(number(0), x_size) as x:
            write(code, target + x, source + x * unit)


def store(code: Code) -> None:
    """Write a STORE of ACC's low bytes by rows: they may overlap."""
    names = ("sram_base", "y_size", "x_size", "x_stride", "start")
    base, y_size, x_size, x_stride, start = code.fields(TRANSFER, names)
    unit, grain_size = code.config.element_bytes(MemoryType.OUT), accesses.grain_bytes(code.config)
    with T.serial(number(0), y_size) as y:
        first = T.bind(start // grain_size + y * x_stride * (unit // grain_size))
        _note_memory(code, "DRAM_written", first, x_size * (unit // grain_size))
        with T.serial(number(0), x_size) as x:
            element = T.bind(base + y * x_size + x)
            code.note(("ACC_read", element))
            target = T.bind(start + (y * x_stride + x) * unit)
            for offset, lanes in code.vectors(code.row):
                # Modulo 256, as on a board and in the functional simulator.
                low = T.cast(code["acc"][span(element * code.row + offset, lanes)], lanewise("uint8", lanes))
                code.store("memory", span(target + offset, lanes), low)


def _note_memory(code: Code, kind: str, first: Any, count: Any) -> None:
    """Record a memory access, in pieces of `boards.vta.simulator.accesses`."""
    with T.serial(number(0), count) as index:
        code.note((kind, first + index))


def _write_uop(code: Code, element: Any, byte: Any) -> None:
    code.store("uop", element, _words(code, byte, 1))


def _write_weights(code: Code, element: Any, byte: Any) -> None:
    block = code.config.block
    with T.serial(number(0), number(block)) as output:
        for begin, lanes in code.vectors(block):
            value = T.cast(_bytes(code, byte, output * block + begin, lanes), lanewise("float32", lanes))
            # Transposed: neighbours of a row go to a column.
            target = (element * block + begin) * block + output
            code.store("wgt", tirx.Ramp(target, number(block), lanes) if lanes > 1 else target, value)


def _write_inputs(code: Code, element: Any, byte: Any) -> None:
    for offset, lanes in code.vectors(code.row):
        value = T.cast(_bytes(code, byte, offset, lanes), lanewise("float32", lanes))
        code.store("inp", span(element * code.row + offset, lanes), value)


def _write_sums(code: Code, element: Any, byte: Any) -> None:
    for offset, lanes in code.vectors(code.row):
        value = _words(code, None if byte is None else byte + offset * 4, lanes)
        code.store("acc", span(element * code.row + offset, lanes), value)


def _write_narrow_sums(code: Code, element: Any, byte: Any) -> None:
    for offset, lanes in code.vectors(code.row):
        value = T.cast(_bytes(code, byte, offset, lanes), lanewise("int32", lanes))
        code.store("acc", span(element * code.row + offset, lanes), T.cast(value, lanewise("uint32", lanes)))


_WRITERS: dict[Action, Callable[[Code, Any, Any], None]] = {
    Action.LOAD_UOP: _write_uop,
    Action.LOAD_WGT: _write_weights,
    Action.LOAD_INP: _write_inputs,
    Action.LOAD_ACC: _write_sums,
    Action.LOAD_ACC_8BIT: _write_narrow_sums,
}
"""Writers of an element by kind of LOAD, from a byte of memory, or zeros for None."""


def _bytes(code: Code, byte: Any, offset: Any, lanes: int) -> Any:
    """Return values of int8."""
    if byte is None:
        return wide(tirx.IntImm("int8", 0), lanes)
    return T.cast(code["memory"][span(byte + offset, lanes)], lanewise("int8", lanes))


def _words(code: Code, byte: Any, lanes: int) -> Any:
    """Return uint32 values from any byte offset."""
    if byte is None:
        return wide(tirx.IntImm("uint32", 0), lanes)
    return T.reinterpret(lanewise("uint32", lanes), code["memory"][span(byte, 4 * lanes)])
