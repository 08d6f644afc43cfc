"""Hardware: interface to registers and memory, real or simulated."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
import numpy.typing as npt

from boards.vta.isa.config import Config
from pipeline.errors import BoardError

# The order of their base addresses in pkg_config.py, a window apart.
MODULES = ("fetch", "load", "compute", "store")
"""Each has a window of registers, one behind the other."""

WINDOW = 0x1000
"""Bytes of one module's registers: `ip_reg_map_range` of VTA's pkg_config.py."""

LARGEST = 1 << 25
"""Bytes of the largest buffer: VTA_MAX_XFER of VTA's driver.h."""

# `fetch_base_addr` of each target in VTA's pkg_config.py.
_FIRST = {"pynq": 0x43C0_0000, "ultra96": 0xA000_0000, "zcu104": 0xA000_0000, "sim": 0x43C0_0000}
# The low memory behind the port that vivado.tcl wires the accelerator to: S_AXI_ACP of a Zynq 7000, else S_AXI_HPC0.
_REACH = {"pynq": 1 << 30, "ultra96": 1 << 31, "zcu104": 1 << 31, "sim": 1 << 30}


class Buffer(Protocol):
    """Memory shared by both sides, through separate caches."""

    @property
    def address(self) -> int:
        """The physical address of its first byte."""

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The bytes as the processor sees them."""

    def flush(self) -> None:
        """Make the processor's writes visible to the accelerator."""

    def invalidate(self) -> None:
        """Make the accelerator's writes visible to the processor."""

    def free(self) -> None:
        """Give the memory back."""


class Registers(Protocol):
    """Registers of one module, 32 bits wide, by byte offset."""

    def read(self, offset: int) -> int:
        """Return a register's value."""

    def write(self, offset: int, value: int) -> None:
        """Change a register."""


class Hardware(Protocol):
    """A board with the accelerator in its logic."""

    @property
    def turn(self) -> AbstractContextManager[object]:
        """Lock of the registers: several stages may drive one accelerator."""

    def registers(self, module: str) -> Registers:
        """Return the registers of one of `MODULES`."""

    def allocate(self, nbytes: int) -> Buffer:
        """Allocate contiguous, page-aligned memory in the accelerator's reach."""

    def power(self) -> dict[str, float]:
        """Return the measured watts per supply."""

    def close(self) -> None:
        """Give the board back."""


def base(config: Config, module: str) -> int:
    """Return the physical address of a module's registers."""
    return _FIRST[config.target] + WINDOW * MODULES.index(module)


def check_address(config: Config, address: int, nbytes: int) -> None:
    """Raise `BoardError` unless the accelerator reaches a buffer."""
    # On a page, because instructions count addresses in elements, and 4096 is a multiple of each element's bytes.
    if address % 4096 or address + nbytes > _REACH[config.target]:
        raise BoardError(
            f"a buffer of {nbytes} bytes at {address:#x} is not on a page's border, or beyond the "
            f"{_REACH[config.target]:#x} bytes that VTA reaches on {config.target}"
        )


def check_size(nbytes: int) -> None:
    """Raise `BoardError` if a buffer exceeds the address space."""
    if nbytes > LARGEST:
        raise BoardError(f"a buffer of {nbytes} bytes is more than VTA's largest, {LARGEST}; use more stages")
