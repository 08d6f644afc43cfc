"""A stand-in for pynq: its names are pynq's, and behind them is a simulated board."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from boards.vta.driver.hardware import MODULES, base
from boards.vta.driver.simulated import SimulatedBoard, SimulatedBuffer


class PynqArray(np.ndarray[Any, Any]):
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


def install(monkeypatch: pytest.MonkeyPatch, board: SimulatedBoard) -> Logic:
    """Let ``import pynq`` give the stand-in for a board."""
    logic = Logic(board)
    modules = {base(board.config, module): module for module in MODULES}

    def allocate(shape: tuple[int, ...], dtype: type[np.uint8]) -> PynqArray:
        assert dtype is np.uint8
        buffer = logic.board.allocate(shape[0])
        array = buffer.array.view(PynqArray)
        array.buffer = buffer
        return array

    class Bitstream:
        def __init__(self, path: str) -> None:
            self.path = path

        def download(self) -> None:
            logic.bitstream_path = self.path

    pynq: Any = ModuleType("pynq")
    pynq.allocate, pynq.Bitstream, pynq.Clocks = allocate, Bitstream, SimpleNamespace(fclk0_mhz=250)
    pynq.MMIO = lambda address, length: logic.board.registers(modules[address] if length == 0x1000 else "")
    sensor = SimpleNamespace(value=1.5)
    pynq.get_rails = lambda: {"5V": SimpleNamespace(power=sensor), "3V3": SimpleNamespace(power=None)}
    monkeypatch.setitem(sys.modules, "pynq", pynq)
    return logic
