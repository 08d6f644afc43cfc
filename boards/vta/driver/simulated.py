"""Simulated registers and memory of a board, with caches."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from boards.vta.driver.driver import CONTROL, COUNT, DONE, OVER, RESTART, START, STREAM
from boards.vta.driver.hardware import MODULES, Registers
from boards.vta.isa.config import INSTRUCTION_BYTES, Config
from boards.vta.isa.encoding import decode, read_stream
from boards.vta.isa.program import PAGE, VtaProgram
from boards.vta.simulator.simulator import simulate
from pipeline.errors import BoardError, BuildError

# Not 0, as on boards: an address that someone forgets to add shows.
_FIRST = 0x1000_0000
_SIZE = 1 << 28


class SimulatedBoard:
    """Board with a simulated accelerator, as strict as hardware.

    Data that the processor writes reach the accelerator only when they are flushed, and the reverse.  A program that
    deadlocks never ends.  A program that does what a board leaves undefined is refused.

    Parameters
    ----------
    config : Config
    strict : bool
        True looks for violations each time a program runs; otherwise the first time only, because they hardly depend on
        the data.
    """

    def __init__(self, config: Config, *, strict: bool = False) -> None:
        self.config, self._strict = config, strict
        self.turn = threading.Lock()
        # The system gives pages when they are first written.
        self._memory = np.zeros(_SIZE, np.uint8)
        self._end = 0
        self._values: Counter[tuple[str, int]] = Counter()
        # By their instructions and the end of memory: what is known of a program serves its next frame.
        self._sound_programs: dict[tuple[bytes, int], VtaProgram] = {}

    def registers(self, module: str) -> Registers:
        """Return the registers of a module."""
        return _SimulatedRegisters(self, module)

    def allocate(self, nbytes: int) -> SimulatedBuffer:
        """Return the next free pages; none are used twice."""
        start = self._end
        self._end += -(-nbytes // PAGE) * PAGE
        if self._end > _SIZE:
            raise BoardError(f"the simulated board has {_SIZE} bytes for VTA; {self._end} are asked for")
        return SimulatedBuffer(_FIRST + start, np.zeros(nbytes, np.uint8), self._memory[start : start + nbytes])

    def power(self) -> dict[str, float]:
        """Return nothing: there is nothing to measure."""
        return {}

    def close(self) -> None:
        """Forget everything."""

    def read(self, module: str, offset: int) -> int:
        """Return a register's value; reading a module's done flag clears it."""
        value = self._values[module, offset]
        # As ap_done of Vivado HLS (UG902), which is cleared on reading.
        if offset == CONTROL:
            self._values[module, offset] &= ~OVER
        return value

    def write(self, module: str, offset: int, value: int) -> None:
        """Write a register; run as soon as all modules are started."""
        self._values[module, offset] = value
        # VTA's driver starts fetch before the modules, and nothing runs until all are started.
        modules_started = all(self._values[module, CONTROL] & RESTART for module in MODULES[1:])
        if modules_started and self._values["fetch", CONTROL] & START:
            self._values["fetch", CONTROL] = OVER
            self._values["compute", DONE] = int(self.run_program())

    def run_program(self) -> bool:
        """Run fetch's program and return if it ends."""
        start = self._values["fetch", STREAM] - _FIRST
        stream = self._memory[start : start + self._values["fetch", COUNT] * INSTRUCTION_BYTES].tobytes()
        # With the end of memory: a program sees the memory up to there, and its bounds are checked against that.
        key = (stream, self._end)
        strict = self._strict or key not in self._sound_programs
        # The same object again where there is one: the compiled simulation keeps a table per program.
        program = self._sound_programs.get(key) or VtaProgram(
            self.config, decode(self.config, read_stream(stream)), self._memory[: self._end], _FIRST
        )
        result = simulate(program, "hardware" if strict else "functional", estimate_cycles=False)
        # What waits for ever is no error of the board: it shows as a register that never changes.
        if any(violation.kind == "deadlock" for violation in result.violations):
            return False
        if result.memory is None:
            raise BuildError(f"a board would not compute this program as meant: {result.violations[0]}")
        self._sound_programs[key] = program
        self._memory[: self._end] = result.memory
        return True


@dataclass(frozen=True)
class _SimulatedRegisters:
    board: SimulatedBoard
    module: str

    def read(self, offset: int) -> int:
        return self.board.read(self.module, offset)

    def write(self, offset: int, value: int) -> None:
        self.board.write(self.module, offset, value)


@dataclass(frozen=True, eq=False)
class SimulatedBuffer:
    """Pages in two views: the processor's and the accelerator's."""

    address: int
    array: npt.NDArray[np.uint8]
    device_side: npt.NDArray[np.uint8]

    def flush(self) -> None:
        """Copy to the accelerator's side."""
        self.device_side[:] = self.array

    def invalidate(self) -> None:
        """Copy from the accelerator's side."""
        self.array[:] = self.device_side

    def free(self) -> None:
        """Do nothing: pages are not used again."""
