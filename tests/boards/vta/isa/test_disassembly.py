"""The disassembler, by hand and from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boards.vta import Config
from boards.vta.isa import encoding
from boards.vta.isa.config import MemoryType
from boards.vta.isa.disassembly import line, text
from boards.vta.isa.instructions import (
    Alu,
    AluOpcode,
    Finish,
    Gemm,
    Instruction,
    LoadInstruction,
    StoreInstruction,
)
from pipeline import cli

STREAM = (
    LoadInstruction(memory_type=MemoryType.UOP, dram_base=0x400, x_size=3, y_size=1, x_stride=3),
    LoadInstruction(
        memory_type=MemoryType.INP, dram_base=0x1234, x_size=14, y_size=9, x_stride=28, y_pad_0=1, pop_next=True
    ),
    Gemm(uop_bgn=0, uop_end=3, iter_out=14, wgt_factor_in=36, pop_prev=True, push_next=True),
    Alu(alu_opcode=AluOpcode.SHR, use_imm=True, imm=-7, uop_bgn=1, uop_end=2),
    StoreInstruction(dram_base=1, x_size=1, y_size=1, pop_prev=True),
    Finish(),
)


@pytest.mark.parametrize(
    ("instruction", "expected_text"),
    [
        (STREAM[0], "LOAD UOP        sram 0..3  dram 0x400 (byte 0x1000)  rows 1 x 3  stride 3"),
        (
            STREAM[1],
            "LOAD INP        sram 0..140  dram 0x1234 (byte 0x12340)  rows 9 x 14  stride 28  {pads}  [pop compute]",
        ),
        (
            STREAM[2],
            "GEMM            uop 0..3  iter 14 x 1  dst +0,0  src +0,0  wgt +0,36  [pop load]  [push store]",
        ),
        (STREAM[3], "ALU SHR imm     uop 1..2  iter 1 x 1  dst +0,0  imm -7"),
        (
            Alu(alu_opcode=AluOpcode.MAX, uop_bgn=0, uop_end=1),
            "ALU MAX         uop 0..1  iter 1 x 1  dst +0,0  src +0,0",
        ),
        (StoreInstruction(memory_type=MemoryType.UOP, push_prev=True), "STORE UOP       nothing  [push compute]"),
        (
            LoadInstruction(memory_type=MemoryType.WGT, pop_prev=True, push_next=True),
            "LOAD WGT        nothing  [pop outside]  [push compute]",
        ),
        (Finish(), "FINISH"),
    ],
)
def test_text(instruction: Instruction, expected_text: str) -> None:
    assert text(Config(), instruction) == expected_text.format(pads="pad rows 1,0 columns 0,0")


def test_lines_have_index_and_module() -> None:
    assert line(Config(), 7, Finish()) == "     7  compute  FINISH"
    assert line(Config(), 12, STREAM[1]).startswith("    12  load     LOAD INP ")


def write(folder: Path, config: Config) -> Path:
    path = folder / "stream.bin"
    path.write_bytes(encoding.encode(config, STREAM).astype("<u8").tobytes())
    return path


@pytest.mark.parametrize("version", ["0.0.1", "0.0.2"])
def test_the_command(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = Config(hw_ver=version)
    stream, uops, sizes = write(tmp_path, config), tmp_path / "uops.bin", tmp_path / "vta_config.json"
    uops.write_bytes(encoding.pack_uops(config, [5], 70, 9).astype("<u4").tobytes())
    sizes.write_text(config.to_json())
    lines = [line(config, index, each) for index, each in enumerate(STREAM)]
    head = f"{stream}: 6 instructions, 1x16_i8w8a32_15_15_18_17, version {version}"
    for options in (["--version", version], ["--config", sizes]):
        assert cli.main(["vta", "disassemble", str(stream), "--uops", str(uops), *map(str, options)]) == 0
        assert capsys.readouterr().out.splitlines() == [head, *lines, "     0  UOP      dst 5  src 70  wgt 9"]


def test_json_has_every_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stream = write(tmp_path, Config())
    assert cli.main(["vta", "disassemble", str(stream), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert (values["version"], [each["file"] for each in values["files"]]) == ("0.0.2", [str(stream)])
    load = values["files"][0]["instructions"][1]
    assert (load["index"], load["module"], load["memory_type"], load["x_stride"]) == (1, "load", "INP", 28)
    assert (load["pop_next"], load["y_pad_0"], load["dram_base"]) == (True, 1, 0x1234)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (bytes(15), [], "stream.bin: 15 bytes are no whole number of instructions of 16 bytes"),
        (b"\x07" + bytes(15), [], "stream.bin: instruction 0: opcode is 7; known are 0 LOAD"),
        (bytes(16), ["--version", "0.1"], "HW_VER is '0.1'; known are 0.0.1, 0.0.2"),
        (bytes(16), ["--config", "missing.json"], "missing.json: No such file or directory"),
    ],
)
def test_mistakes(
    data: bytes, options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "stream.bin"
    path.write_bytes(data)
    assert cli.main(["vta", "disassemble", str(path), *options]) in (1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_the_examples_of_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["vta", "disassemble", "--help"])
    assert end.value.code == 0
    assert "soc-pipeline vta disassemble stream.bin --version 0.0.1" in capsys.readouterr().out
