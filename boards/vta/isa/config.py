"""Config: sizes and widths of one accelerator build, immutable."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path

import msgspec

from pipeline.errors import BoardError, near
from pipeline.system.files import check_regular

VERSIONS = ("0.0.1", "0.0.2")
"""Versions of the instruction set, oldest first."""

# VTA_INS_WIDTH and VTA_UOP_WIDTH of hw_spec_const.h: 128 and 32 bits in every configuration.
INSTRUCTION_BYTES = 16
UOP_BYTES = 4

LARGEST_LOG = 32
"""Largest logarithm of a size. Addresses have 32 bits, and larger ones would be powers without end."""


class MemoryType(IntEnum):
    """Scratchpads by their code in LOAD and STORE; ACC_8BIT loads int8 into ACC."""

    # VTA_MEM_ID_* of hw_spec_const.h.
    UOP = 0
    WGT = 1
    INP = 2
    ACC = 3
    OUT = 4
    ACC_8BIT = 5


@dataclass(frozen=True)
class BoardTiming:
    """Clock and bus of a board, which limit a program's time.

    Attributes
    ----------
    clock_hz : float
        Clock rate of the accelerator.
    bus_bytes : int
        Bytes per cycle of the one port through which it reaches the memory.
    """

    clock_hz: float
    bus_bytes: int


# `fpga_freq` and `fpga_log_axi_bus_width` of VTA's pkg_config.py.
BOARDS = {
    "pynq": BoardTiming(100e6, 8),
    "ultra96": BoardTiming(333e6, 16),
    "zcu104": BoardTiming(333e6, 16),
    "sim": BoardTiming(100e6, 8),
}
"""Boards by the TARGET of VTA's configuration files; ``sim`` is timed as a PYNQ."""


@dataclass(frozen=True)
class Config:
    """Sizes of one accelerator, as logarithms to base 2.

    The defaults are those of every configuration file that VTA comes with.

    Attributes
    ----------
    target : str
        The board, one of `BOARDS`.
    hw_ver : str
        Version of the instruction set: ``"0.0.1"`` (the published Ultra96 bitstream) or ``"0.0.2"``.
    log_inp_width, log_wgt_width, log_acc_width : int
        Bits of a value: int8, int8 and int32, the only ones there are bitstreams of.
    log_batch, log_block : int
        Rows of an input element, and channels of any element.
    log_uop_buff_size, log_inp_buff_size, log_wgt_buff_size, log_acc_buff_size : int
        Bytes of a scratchpad.

    Raises
    ------
    BoardError
        If there is no such board or version, or the sizes contradict each other or the instruction format.
    """

    target: str = "sim"
    hw_ver: str = "0.0.2"
    log_inp_width: int = 3
    log_wgt_width: int = 3
    log_acc_width: int = 5
    log_batch: int = 0
    log_block: int = 4
    log_uop_buff_size: int = 15
    log_inp_buff_size: int = 15
    log_wgt_buff_size: int = 18
    log_acc_buff_size: int = 17

    def __post_init__(self) -> None:
        if self.target not in BOARDS:
            raise BoardError(f"TARGET is {self.target!r}; known are {', '.join(BOARDS)}{near(self.target, BOARDS)}")
        if self.hw_ver not in VERSIONS:
            raise BoardError(f"HW_VER is {self.hw_ver!r}; known are {', '.join(VERSIONS)}")
        widths = (self.log_inp_width, self.log_wgt_width, self.log_acc_width)
        if widths != (3, 3, 5):
            raise BoardError(f"LOG_INP_WIDTH, LOG_WGT_WIDTH, LOG_ACC_WIDTH are {widths}; only (3, 3, 5) is supported")
        # Before any power of two is computed, which may take all memory.
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.startswith("log_") and value > LARGEST_LOG:
                raise BoardError(f"{field.name.upper()} is {value}; it must be at most {LARGEST_LOG}")
        self._check_depths()

    def _check_depths(self) -> None:
        if min(self.log_batch, self.log_block) < 0:
            raise BoardError(f"LOG_BATCH and LOG_BLOCK are {self.log_batch}, {self.log_block}; neither may be below 0")
        # With a single element, its index would be a field without bits.
        for memory in (MemoryType.UOP, MemoryType.INP, MemoryType.WGT, MemoryType.ACC):
            if self.log_depth(memory) < 1:
                size = getattr(self, f"log_{memory.name.lower()}_buff_size")
                raise BoardError(
                    f"LOG_{memory.name}_BUFF_SIZE is {size}; it must be at least "
                    f"{size - self.log_depth(memory) + 1}, so that the scratchpad holds two elements"
                )
        uop, inp, wgt, acc = (
            self.log_depth(memory) for memory in (MemoryType.UOP, MemoryType.INP, MemoryType.WGT, MemoryType.ACC)
        )
        # vta.cc reads the source of an ALU micro-op from the field of INP, which must hold an index of ACC.
        if acc > inp:
            raise BoardError(f"ACC has 2^{acc} elements and INP 2^{inp}; hardware with a deeper ACC misreads micro-ops")
        # VTAUop of hw_spec.h: the three indices fill 32 bits, and the six factors of GEMM a word of 64.
        if inp + wgt + acc != 8 * UOP_BYTES:
            raise BoardError(
                f"a micro-op has {inp + wgt + acc} bits (ACC {acc}, INP {inp}, WGT {wgt}); it must have 32"
            )
        # What the layout of the 128 bits has room for beside loops of 14 bits; see `boards.vta.isa.layout`.
        # The first word: 3 + 4 + 1 + uop + (uop + 1) + 14 + 14 bits; the second of ALU: 4 acc + 3 + 1 + 16.
        if uop > 13 or acc > 11:
            raise BoardError(
                f"UOP has 2^{uop} and ACC 2^{acc} elements; the fields of an instruction reach to 2^13 and 2^11"
            )

    @property
    def batch(self) -> int:
        """Rows of an INP, ACC or OUT element."""
        return 1 << self.log_batch

    @property
    def block(self) -> int:
        """Channels of an element."""
        return 1 << self.log_block

    @property
    def board(self) -> BoardTiming:
        """The board's clock and bus."""
        return BOARDS[self.target]

    @property
    def name(self) -> str:
        """The name of its published bitstream, such as ``1x16_i8w8a32_15_15_18_17``."""
        # As `bitstream` of pkg_config.py, by which VTA's files are published.
        sizes = (self.log_uop_buff_size, self.log_inp_buff_size, self.log_wgt_buff_size, self.log_acc_buff_size)
        return f"{self.batch}x{self.block}_i8w8a32_{'_'.join(map(str, sizes))}"

    def element_bytes(self, memory: MemoryType) -> int:
        """Return the DRAM bytes of one scratchpad element."""
        row = self.batch * self.block
        matrix = self.block * self.block
        sizes = {MemoryType.UOP: UOP_BYTES, MemoryType.WGT: matrix, MemoryType.ACC: 4 * row}
        # INP, OUT and what ACC_8BIT loads are rows of int8.
        return sizes.get(memory, row)

    def log_depth(self, memory: MemoryType) -> int:
        """Logarithm of a scratchpad's elements; OUT has ACC's indices."""
        holder = MemoryType.ACC if memory in (MemoryType.OUT, MemoryType.ACC_8BIT) else memory
        size: int = getattr(self, f"log_{holder.name.lower()}_buff_size")
        # Elements are powers of two, whose bit length is the logarithm plus 1.
        return size - self.element_bytes(holder).bit_length() + 1

    def depth(self, memory: MemoryType) -> int:
        """Return the number of a scratchpad's elements."""
        return 1 << self.log_depth(memory)

    @classmethod
    def from_json(cls, text: str | bytes) -> Config:
        """Read VTA's own form, as in its ``vta_config.json``, or raise `BoardError`."""
        try:
            entries = msgspec.json.decode(text, type=dict[str, str | int])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BoardError(f"a VTA configuration is a JSON object of numbers and names: {error}") from None
        keys = {field.name.upper(): field for field in fields(cls)}
        if missing_keys := [key for key in keys if key not in entries]:
            raise BoardError(f"a VTA configuration needs {missing_keys[0]!r}; it is not there")
        for key, value in entries.items():
            if key not in keys:
                raise BoardError(f"a VTA configuration has no {key!r}{near(key, keys)}")
            # Annotations are texts in this file, because of the import from `__future__`.
            if type(value).__name__ != keys[key].type:
                raise BoardError(f"{key} is {value!r}; it must be of type {keys[key].type}")
        return cls(**{key.lower(): value for key, value in entries.items()})  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: str | Path) -> Config:
        """Read a file of `from_json`; errors name it."""
        try:
            check_regular(Path(path))
            return cls.from_json(Path(path).read_bytes())
        except BoardError as error:
            raise BoardError(f"{path}: {error}") from None

    def to_json(self) -> str:
        """Return VTA's own form."""
        values = {field.name.upper(): getattr(self, field.name) for field in fields(self)}
        return msgspec.json.format(msgspec.json.encode(values), indent=2).decode() + "\n"


ULTRA96 = Config("ultra96", "0.0.1")
"""Configuration of the only published Ultra96 bitstream."""

PYNQ = Config("pynq", "0.0.2")
"""Configuration of the newest published PYNQ bitstream."""
