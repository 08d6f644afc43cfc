"""The board's side, with a stand-in for pynq: its names are pynq's, and behind them is the simulator."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from boards.vta.driver import selftest
from boards.vta.driver.driver import Driver
from boards.vta.driver.hardware import MODULES, base
from boards.vta.driver.pynq import PynqBoard
from boards.vta.driver.simulated import SimulatedBoard, SimulatedBuffer
from boards.vta.isa.config import ULTRA96
from pipeline.errors import BoardError, MissingExtra


class Array(np.ndarray[Any, Any]):
    """As pynq's buffers, an array with further methods."""

    buffer: SimulatedBuffer

    @property
    def device_address(self) -> int:
        return self.buffer.address

    def flush(self) -> None:
        self.buffer.flush()

    def invalidate(self) -> None:
        self.buffer.invalidate()

    def freebuffer(self) -> None:
        self.buffer.free()


@dataclass
class Logic:
    """The contents of the board's logic."""

    board: SimulatedBoard
    bitstream_path: str = ""


@pytest.fixture
def logic(monkeypatch: pytest.MonkeyPatch) -> Logic:
    """Install the stand-in."""
    board_logic = Logic(SimulatedBoard(ULTRA96))
    modules = {base(ULTRA96, module): module for module in MODULES}

    def allocate(shape: tuple[int, ...], dtype: type[np.uint8]) -> Array:
        assert dtype is np.uint8
        buffer = board_logic.board.allocate(shape[0])
        array = buffer.array.view(Array)
        array.buffer = buffer
        return array

    class Bitstream:
        def __init__(self, path: str) -> None:
            self._path = path

        def download(self) -> None:
            board_logic.bitstream_path = self._path

    pynq: Any = ModuleType("pynq")
    pynq.allocate, pynq.Bitstream, pynq.Clocks = allocate, Bitstream, SimpleNamespace(fclk0_mhz=250)
    pynq.MMIO = lambda address, length: board_logic.board.registers(modules[address] if length == 0x1000 else "")
    sensor = SimpleNamespace(value=1.5)
    pynq.get_rails = lambda: {"5V": SimpleNamespace(power=sensor), "3V3": SimpleNamespace(power=None)}
    monkeypatch.setitem(sys.modules, "pynq", pynq)
    return board_logic


def test_the_self_test_passes_through_pynq(logic: Logic, tmp_path: Path) -> None:
    bitstream = tmp_path / "vta.bit"
    bitstream.write_bytes(b"bits")
    board = PynqBoard(ULTRA96, bitstream)
    assert logic.bitstream_path == str(bitstream)
    assert sys.modules["pynq"].Clocks.fclk0_mhz == 100
    assert board.power() == {"5V": 1.5}
    with Driver(ULTRA96, board) as driver:
        for _, outcome in zip(range(2), selftest.run_selftests(driver), strict=False):
            assert outcome.passed, outcome.message


def test_stages_share_the_accelerator(logic: Logic, tmp_path: Path) -> None:
    """A second one that loaded the bitstream again, or touched the registers meanwhile, would stop the first."""
    bitstream = tmp_path / "vta.bit"
    bitstream.write_bytes(b"bits")
    first = PynqBoard(ULTRA96, bitstream)
    logic.bitstream_path = ""
    second = PynqBoard(ULTRA96, bitstream)
    assert not logic.bitstream_path
    assert first.turn is second.turn
    first.close()
    second.close()
    PynqBoard(ULTRA96, bitstream).close()
    assert logic.bitstream_path == str(bitstream)


def test_a_missing_bitstream_is_named(logic: Logic) -> None:
    with pytest.raises(BoardError, match=r"no bitstream at 'absent\.bit'"):
        PynqBoard(ULTRA96, Path("absent.bit"))
    assert not logic.bitstream_path


def test_without_pynq_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynq", None)
    with pytest.raises(MissingExtra, match=r"soc-pipeline\[pynq\]"):
        PynqBoard(ULTRA96)
