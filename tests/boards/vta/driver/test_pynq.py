"""The board's side, with a stand-in for pynq."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from boards.vta.driver import selftest
from boards.vta.driver.driver import Driver
from boards.vta.driver.pynq import PynqBoard
from boards.vta.driver.simulated import SimulatedBoard
from boards.vta.isa.config import ULTRA96
from pipeline.errors import BoardError, MissingExtra
from tests.support.vta.pynq_stand_in import Logic, install


@pytest.fixture
def logic(monkeypatch: pytest.MonkeyPatch) -> Logic:
    """Install the stand-in."""
    return install(monkeypatch, SimulatedBoard(ULTRA96))


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
    with pytest.raises(MissingExtra, match="pip install 'pynq<"):
        PynqBoard(ULTRA96)
