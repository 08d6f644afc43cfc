"""Code: vocabulary of the compiled interpreter over TVM's tensor IR."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812 - its usual name

from boards.vta.isa.config import Config
from boards.vta.simulator.compiled.state import arrays
from boards.vta.simulator.compiled.table import ORDER
from pipeline.tvm.statements import number

# 16 values of 32 bits are one register of AVX-512 and two of AVX2; a block of channels is as wide.
LANES = 16
"""Values of one vector at most."""

_CONFLICTS = {
    "INP_read": (("INP_written", "known_load"),),
    "INP_written": (("INP_read", "known_compute"),),
    "WGT_read": (("WGT_written", "known_load"),),
    "WGT_written": (("WGT_read", "known_compute"),),
    "ACC_read": (("ACC_written", "known_compute"),),
    "ACC_written": (("ACC_read", "known_store"),),
    "DRAM_read_by_load": (("DRAM_written", "known_store"),),
    "DRAM_read_by_compute": (("DRAM_written", "known_store"),),
    "DRAM_written": (("DRAM_read_by_load", "known_load"), ("DRAM_read_by_compute", "known_compute")),
}
"""Conflicts by kind of access, each unless the module knows that access to be over. Other kinds have none."""


class Code:
    """Parameters of the interpreter, and the current instruction.

    Its methods append statements to the function that TVM's builder is at.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.row = config.batch * config.block
        extents: dict[str, Any] = {}
        self.arrays = {
            name: T.arg(name, T.buffer([self._extent(extents, extent) for extent in array.shape], array.dtype))
            for name, array in arrays(config).items()
        }
        self.instructions = extents["instructions"]
        self.index: Any = None
        self.order: dict[str, Any] = {}

    @staticmethod
    def _extent(extents: dict[str, Any], extent: int | str) -> Any:
        if isinstance(extent, int):
            return number(extent)
        return extents.setdefault(extent, tirx.Var(extent, "int64"))

    def __getitem__(self, name: str) -> Any:
        """Return an array."""
        return self.arrays[name]

    def store(self, name: str, index: Any, value: Any) -> None:
        """Write an array element, or a vector for a ramp index."""
        T.buffer_store(self.arrays[name], value, [index])

    def begin(self, index: Any) -> Any:
        """Move to an instruction and return its action."""
        self.index = index
        action, *order_columns = (T.bind(self.arrays["table"][index, number(column)]) for column in range(len(ORDER)))
        # Stamps have 32 bits: half the memory of indices, and far more than a stream has instructions.
        self.order = {
            name: T.bind(T.cast(value, "int32")) for name, value in zip(ORDER[1:], order_columns, strict=True)
        }
        return action

    def fields(self, columns: Sequence[str], names: Sequence[str]) -> list[Any]:
        """Return fields of the instruction as variables, after those of `ORDER`."""
        table = self.arrays["table"]
        return [T.bind(table[self.index, number(len(ORDER) + columns.index(name))]) for name in names]

    def fail(self) -> None:
        """Append the statement for an unsound program."""
        self.store("wrong", number(0), tirx.IntImm("int32", 1))

    def note(self, *accesses: tuple[str, Any]) -> None:
        """Record accesses of `_CONFLICTS`, and fail on a conflict."""
        conflicts = [
            self.arrays[stamps][element] > self.order[progress]
            for kind, element in accesses
            for stamps, progress in _CONFLICTS[kind]
        ]
        # One branch for all accesses: it is hardly ever taken.
        with when(tirx.any(*conflicts)):
            self.fail()
        for kind, element in accesses:
            self.store(kind, element, self.order["number"])

    def vectors(self, size: int) -> Iterator[tuple[Any, int]]:
        """Yield offset and lanes of vectors over `size` values."""
        lanes = min(size, LANES)
        # All sizes are powers of two, so that no value remains.
        with T.serial(number(0), number(size // lanes)) as vector:
            yield vector * lanes, lanes


@contextmanager
def when(condition: Any) -> Iterator[None]:
    """Emit the body under a condition."""
    with T.If(condition), T.Then():
        yield
