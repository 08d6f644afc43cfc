"""Board with pynq, Xilinx's Python library for Zynq. Never tried on hardware."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from boards.vta.driver.hardware import MODULES, WINDOW, Registers, base
from boards.vta.isa.config import Config
from pipeline.errors import BoardError
from pipeline.system.optional import require

FABRIC_MHZ = 100
"""Clock of the programmable logic in MHz, divided from the processor's."""


class PynqBoard:
    """Accelerator of this board, shared in turn; loads the bitstream once.

    Parameters
    ----------
    config : Config
        Configuration of the bitstream.
    bitstream : Path, optional
        Bitstream to load into the logic first; without it, the loaded one stays.

    Raises
    ------
    MissingExtra
        If pynq is not installed.
    BoardError
        If there is no such bitstream.
    """

    # Of the class, since there is one accelerator however many stages open it.  The lock protects `_users` here, and
    # the registers while the driver runs a program.
    turn: ClassVar[threading.Lock] = threading.Lock()
    _users: ClassVar[int] = 0

    def __init__(self, config: Config, bitstream: Path | None = None) -> None:
        self._pynq: Any = require("pynq", "pynq", "driving VTA")
        if bitstream is not None and not bitstream.is_file():
            raise BoardError(f"no bitstream at {str(bitstream)!r}")
        with self.turn:
            # Not for later stages: loading the bitstream again would stop the first one's program.
            if not PynqBoard._users:
                self._prepare(bitstream)
            self._windows = {module: self._pynq.MMIO(base(config, module), WINDOW) for module in MODULES}
            PynqBoard._users += 1

    def _prepare(self, bitstream: Path | None) -> None:
        if bitstream is not None:
            # Not an overlay: published bitstreams come without the description of their hardware.
            self._pynq.Bitstream(str(bitstream)).download()
        # pynq sets clocks only with an overlay, from the description that is missing here.
        self._pynq.Clocks.fclk0_mhz = FABRIC_MHZ

    def registers(self, module: str) -> Registers:
        """Return a module's registers; pynq maps them uncached."""
        return cast("Registers", self._windows[module])

    def allocate(self, nbytes: int) -> PynqBuffer:
        """Return contiguous memory."""
        return PynqBuffer(self._pynq.allocate(shape=(nbytes,), dtype=np.uint8))

    def power(self) -> dict[str, float]:
        """Return watts per supply, empty on boards without sensors."""
        rails = self._pynq.get_rails()
        # A rail may have sensors of voltage or current only.
        sensors = {name: getattr(rail, "power", None) for name, rail in rails.items()}
        return {name: float(sensor.value) for name, sensor in sensors.items() if sensor is not None}

    def close(self) -> None:
        """Leave the bitstream where it is."""
        with self.turn:
            PynqBoard._users -= 1


class PynqBuffer:
    """Memory from pynq's allocator."""

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer

    @property
    def address(self) -> int:
        """The physical address."""
        return int(self._buffer.device_address)

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The bytes as the processor sees them."""
        return np.asarray(self._buffer)

    def flush(self) -> None:
        """Write the processor's caches back."""
        self._buffer.flush()

    def invalidate(self) -> None:
        """Drop the processor's cached lines."""
        self._buffer.invalidate()

    def free(self) -> None:
        """Give it back."""
        self._buffer.freebuffer()
