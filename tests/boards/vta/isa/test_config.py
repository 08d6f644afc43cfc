"""A configuration's derived sizes, VTA's own form of it, and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boards.vta.isa.config import PYNQ, ULTRA96, Config, MemoryType
from pipeline.errors import BoardError
from tests.support.vta.building import BATCHED


def test_the_standard_sizes() -> None:
    config = Config()
    assert config.name == "1x16_i8w8a32_15_15_18_17"
    assert {memory.name: config.element_bytes(memory) for memory in MemoryType} == {
        "UOP": 4,
        "WGT": 256,
        "INP": 16,
        "ACC": 64,
        "OUT": 16,
        "ACC_8BIT": 16,
    }
    assert {memory.name: config.depth(memory) for memory in MemoryType} == {
        "UOP": 8192,
        "WGT": 1024,
        "INP": 2048,
        "ACC": 2048,
        "OUT": 2048,
        "ACC_8BIT": 2048,
    }


def test_the_batched_sizes() -> None:
    assert BATCHED.name == "4x8_i8w8a32_15_16_16_18"
    assert [BATCHED.depth(each) for each in (MemoryType.INP, MemoryType.WGT, MemoryType.ACC)] == [2048, 1024, 2048]
    assert [BATCHED.element_bytes(each) for each in (MemoryType.INP, MemoryType.WGT, MemoryType.ACC)] == [32, 64, 128]


def test_the_published_boards() -> None:
    assert (ULTRA96.hw_ver, ULTRA96.board.clock_hz, ULTRA96.board.bus_bytes) == ("0.0.1", 333e6, 16)
    assert (PYNQ.hw_ver, PYNQ.board.clock_hz, PYNQ.board.bus_bytes) == ("0.0.2", 100e6, 8)


@pytest.mark.parametrize("config", [Config(), BATCHED, ULTRA96])
def test_vtas_own_form_round_trips(config: Config, tmp_path: Path) -> None:
    path = tmp_path / "vta_config.json"
    path.write_text(config.to_json())
    assert Config.load(path) == config
    assert json.loads(path.read_text())["LOG_BLOCK"] == config.log_block


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "ultra69"}, "TARGET is 'ultra69'; known are .*; did you mean 'ultra96'"),
        ({"hw_ver": "0.0.0"}, "HW_VER is '0.0.0'; known are 0.0.1, 0.0.2"),
        ({"log_wgt_width": 2}, r"LOG_INP_WIDTH, .* are \(3, 2, 5\); only \(3, 3, 5\)"),
        ({"log_batch": -1}, "LOG_BATCH and LOG_BLOCK are -1, 4"),
        ({"log_block": 1 << 40}, "LOG_BLOCK is 1099511627776; it must be at most 32"),
        ({"log_wgt_buff_size": 8}, "LOG_WGT_BUFF_SIZE is 8; it must be at least 9"),
        ({"log_acc_buff_size": 18, "log_wgt_buff_size": 17}, r"ACC has 2\^12 elements and INP 2\^11"),
        ({"log_wgt_buff_size": 17}, r"a micro-op has 31 bits \(ACC 11, INP 11, WGT 9\); it must have 32"),
        ({"log_uop_buff_size": 16}, r"UOP has 2\^14 .* reach to 2\^13 and 2\^11"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BoardError, match=message):
        Config(**changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"LOG_BLOCK": None}, "must be|number"),
        ({"LOG_BLOCK": "4"}, "LOG_BLOCK is '4'; it must be of type int"),
        ({"LOG_BLOCKS": 4}, "has no 'LOG_BLOCKS'; did you mean 'LOG_BLOCK'"),
    ],
)
def test_wrong_files_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(json.loads(Config().to_json()) | change))
    with pytest.raises(BoardError, match=message) as error_info:
        Config.load(path)
    assert str(error_info.value).startswith(str(path))


def test_a_missing_key_and_no_json_are_refused() -> None:
    sizes = json.loads(Config().to_json())
    del sizes["LOG_BATCH"]
    with pytest.raises(BoardError, match="needs 'LOG_BATCH'"):
        Config.from_json(json.dumps(sizes))
    with pytest.raises(BoardError, match="is a JSON object"):
        Config.from_json(b"\xff\x00")
