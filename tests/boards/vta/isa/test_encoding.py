"""Encoding puts every field of every instruction into its bits, and decoding gets it back, in both versions."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boards.vta.isa.config import Config, MemoryType
from boards.vta.isa.encoding import decode, decode_uops, encode, pack_uops, read_stream, read_uops
from boards.vta.isa.instructions import (
    Alu,
    AluOpcode,
    Finish,
    Gemm,
    Instruction,
    LoadInstruction,
    Opcode,
    StoreInstruction,
    Uop,
)
from boards.vta.isa.layout import fields, uop_fields
from pipeline.errors import InstructionError
from tests.support.vta.building import BATCHED, encode_uops

NEW = Config()
OLD = Config(hw_ver="0.0.1")
CONFIGS = [NEW, OLD, BATCHED, replace(BATCHED, hw_ver="0.0.2"), replace(NEW, log_uop_buff_size=13)]
CLASSES: dict[Opcode, Any] = {
    Opcode.LOAD: LoadInstruction,
    Opcode.STORE: StoreInstruction,
    Opcode.GEMM: Gemm,
    Opcode.ALU: Alu,
}
FLAGS = ("pop_prev", "pop_next", "push_prev", "push_next", "reset_reg", "use_imm")

SIX: dict[str, Any] = {"iter_out": 6, "iter_in": 6, "dst_factor_out": 6, "dst_factor_in": 1}
ALL: dict[str, Any] = {"pop_prev": True, "pop_next": True, "push_prev": True, "push_next": True}
SHIFTED: dict[str, Any] = {
    "uop_bgn": 18,
    "uop_end": 19,
    **SIX,
    "src_factor_out": 6,
    "src_factor_in": 1,
    "use_imm": True,
}
VECTORS: list[tuple[Instruction, str]] = [
    (
        LoadInstruction(memory_type=MemoryType.UOP, dram_base=0x400, x_size=1, y_size=1, x_stride=1),
        "0000001000000000 0000000100010001",
    ),
    (
        LoadInstruction(memory_type=MemoryType.ACC, sram_base=36, dram_base=0x800, x_size=1, y_size=1, x_stride=1),
        "0000002000009180 0000000100010001",
    ),
    (
        LoadInstruction(
            memory_type=MemoryType.INP,
            sram_base=64,
            dram_base=0x1234,
            x_size=14,
            y_size=9,
            x_stride=28,
            y_pad_0=1,
            x_pad_0=1,
            x_pad_1=1,
            pop_next=True,
        ),
        "00000048d0010110 1101001c000e0009",
    ),
    (
        LoadInstruction(memory_type=MemoryType.WGT, dram_base=0x400, x_size=18, y_size=1, x_stride=18, push_next=True),
        "00000010000000c0 0000001200120001",
    ),
    (
        Gemm(reset_reg=True, uop_bgn=18, uop_end=19, **SIX, pop_prev=True),
        "000c00300260128a 0000000000000806",
    ),
    (
        Gemm(uop_bgn=0, uop_end=18, **SIX, src_factor_out=8, src_factor_in=1, **ALL),
        "000c00300240007a 0000000202000806",
    ),
    (
        Gemm(
            uop_bgn=3,
            uop_end=5,
            iter_out=14,
            iter_in=2,
            dst_factor_out=98,
            dst_factor_in=49,
            src_factor_out=16,
            wgt_factor_in=36,
        ),
        "0004007000a00302 0900000004018862",
    ),
    (Alu(alu_opcode=AluOpcode.SHR, imm=7, **SHIFTED), "000c003002601204 0007b00201800806"),
    (Alu(alu_opcode=AluOpcode.MAX, imm=0, **SHIFTED), "000c003002601204 0000900201800806"),
    (
        Alu(
            alu_opcode=AluOpcode.ADD,
            use_imm=True,
            imm=-5,
            uop_bgn=0,
            uop_end=1,
            iter_in=4,
            dst_factor_in=1,
            src_factor_in=1,
            push_next=True,
        ),
        "0008000800200044 fffba00200000800",
    ),
    (Alu(alu_opcode=AluOpcode.ADD, uop_bgn=19, uop_end=20, **SIX), "000c003002801304 0000200000000806"),
    (
        StoreInstruction(dram_base=0x5000, x_size=36, y_size=1, x_stride=36, pop_prev=True, push_prev=True),
        "0000014000000229 0000002400240001",
    ),
    (LoadInstruction(memory_type=MemoryType.INP, push_next=True), "0000000000000140 0000000000000000"),
    (LoadInstruction(memory_type=MemoryType.UOP, pop_prev=True, pop_next=True), "0000000000000018 0000000000000000"),
    (StoreInstruction(memory_type=MemoryType.UOP, push_prev=True), "0000000000000021 0000000000000000"),
    (Finish(), "0000000000000003 0000000000000000"),
]


@pytest.mark.parametrize(("instruction", "text"), VECTORS)
def test_published_vectors(instruction: Instruction, text: str) -> None:
    (pair,) = encode(NEW, [instruction])
    assert f"{pair[0]:016x} {pair[1]:016x}" == text
    assert decode(NEW, pair.reshape(1, 2)) == (instruction,)


def test_the_published_micro_op() -> None:
    assert pack_uops(NEW, [5], 70, 9).tolist() == [0x02423005]


@st.composite
def instructions(draw: st.DrawFn, config: Config) -> Any:
    opcode = draw(st.sampled_from(Opcode))
    values: dict[str, Any] = {}
    for field in fields(config, opcode)[1:]:
        edges = st.sampled_from([field.low, field.high])
        values[field.name] = draw(edges | st.integers(field.low, field.high))
    values |= {name: bool(values[name]) for name in FLAGS if name in values}
    is_old = config.hw_ver == "0.0.1"
    if opcode in (Opcode.LOAD, Opcode.STORE):
        # Where STORE has two bits only, 0 is what is left of OUT.
        first = MemoryType.OUT if is_old and opcode is Opcode.STORE else MemoryType.UOP
        other_memories = (
            MemoryType.WGT,
            MemoryType.INP,
            MemoryType.ACC,
            *(() if is_old else (MemoryType.OUT, MemoryType.ACC_8BIT)),
        )
        values["memory_type"] = draw(st.sampled_from((first, *other_memories)))
    if opcode is Opcode.ALU:
        values["alu_opcode"] = draw(st.sampled_from([each for each in AluOpcode if not is_old or each < AluOpcode.MUL]))
    return Finish(**values) if opcode is Opcode.FINISH else CLASSES[opcode](**values)


@pytest.mark.parametrize("config", CONFIGS)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_every_field_round_trips(config: Config, data: st.DataObject) -> None:
    words = data.draw(st.lists(instructions(config), max_size=4))
    stream = encode(config, words)
    assert decode(config, stream) == tuple(words)
    np.testing.assert_array_equal(read_stream(stream.astype("<u8").tobytes()), stream)


@pytest.mark.parametrize("config", CONFIGS)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_micro_ops_round_trip(config: Config, data: st.DataObject) -> None:
    indices = [st.integers(0, field.high) for field in uop_fields(config)]
    words = tuple(data.draw(st.lists(st.builds(Uop, *indices), max_size=4)))
    uops = encode_uops(config, words)
    assert decode_uops(config, uops) == words
    np.testing.assert_array_equal(read_uops(uops.astype("<u4").tobytes()), uops)


@settings(deadline=None)
@given(low=st.integers(0, 2**64 - 1), high=st.integers(0, 2**64 - 1), is_old=st.booleans())
def test_unused_bits_do_not_matter(low: int, high: int, *, is_old: bool) -> None:
    config = OLD if is_old else NEW
    stream = np.array([[low, high]], np.uint64)
    with contextlib.suppress(InstructionError):  # an unknown code
        decoded_fields = decode(config, stream)
        used_bits = encode(config, decoded_fields)
        assert decode(config, used_bits) == decoded_fields
        assert (used_bits & ~stream == 0).all()


def overflow_cases() -> list[tuple[Config, Any, str, int]]:
    cases = []
    for config in (NEW, OLD):
        for opcode, required_bits in (
            (Opcode.LOAD, {"memory_type": MemoryType.INP}),
            (Opcode.STORE, {}),
            (Opcode.GEMM, {"uop_bgn": 0, "uop_end": 0}),
            (Opcode.ALU, {"uop_bgn": 0, "uop_end": 0, "alu_opcode": AluOpcode.ADD}),
        ):
            for field in fields(config, opcode):
                if field.name not in ("opcode", "alu_opcode", "memory_type"):
                    for value in (field.low - 1, field.high + 1):
                        cases.append(
                            (config, CLASSES[opcode](**(required_bits | {field.name: value})), field.name, value)
                        )
    return cases


def test_a_value_that_does_not_fit_names_its_field() -> None:
    cases = overflow_cases()
    assert len(cases) == 2 * 2 * (13 + 13 + 15 + 15)
    for config, instruction, name, value in cases:
        with pytest.raises(
            InstructionError, match=rf"instruction 1: {instruction.opcode.name}: {name} is {value}; its"
        ):
            encode(config, [Finish(), instruction])


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        (LoadInstruction(memory_type=MemoryType.ACC_8BIT), "LOAD: memory_type is ACC_8BIT; its 2 bits hold 0 to 3"),
        (LoadInstruction(memory_type=MemoryType.OUT), "LOAD: memory_type is OUT; its 2 bits"),
        (Alu(alu_opcode=AluOpcode.MUL, uop_bgn=0, uop_end=1), "ALU: alu_opcode is MUL; its 2 bits"),
    ],
)
def test_what_the_old_version_lacks(instruction: Instruction, message: str) -> None:
    assert len(encode(NEW, [instruction])) == 1
    with pytest.raises(InstructionError, match=message):
        encode(OLD, [instruction])


def test_the_old_version_stores_from_out() -> None:
    (decoded_fields,) = decode(OLD, encode(OLD, [StoreInstruction(x_size=1)]))
    assert decoded_fields == StoreInstruction(x_size=1, memory_type=MemoryType.OUT)


def test_an_index_that_does_not_fit_a_micro_op_is_named() -> None:
    with pytest.raises(InstructionError, match="micro-op: wgt_idx is 1024; its 10 bits hold 0 to 1023"):
        pack_uops(NEW, [0, 1], [0, 2], [0, 1024])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (7, "instruction 1: opcode is 7; known are 0 LOAD, 1 STORE, 2 GEMM, 3 FINISH, 4 ALU"),
        (6 << 7, "instruction 1: memory_type is 6; known are 0 UOP, 1 WGT"),
    ],
)
def test_unknown_codes_are_refused(word: int, message: str) -> None:
    with pytest.raises(InstructionError, match=message):
        decode(NEW, np.array([[3, 0], [word, 0]], np.uint64))
    with pytest.raises(InstructionError, match="instruction 0: alu_opcode is 5"):
        decode(NEW, np.array([[4, 5 << 44]], np.uint64))


def test_pieces_of_instructions_are_refused() -> None:
    with pytest.raises(InstructionError, match="17 bytes are no whole number of instructions of 16 bytes"):
        read_stream(bytes(17))
    with pytest.raises(InstructionError, match="2 bytes are no whole number of micro-ops of 4 bytes"):
        read_uops(bytes(2))
