"""Driver: runs programs on the accelerator, through its registers.

The sequence follows the one that VTA's own driver has always used, and also waits until fetch has handed out all
instructions: until then, the flag that says that a program is over may be that of the program before.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from boards.vta.driver.hardware import MODULES, Buffer, Hardware, check_address, check_size
from boards.vta.isa.config import Config
from boards.vta.isa.program import VtaProgram
from pipeline.errors import DeviceLost
from pipeline.system.closable import Closable

# Offsets of pkg_config.py and of the AXI-Lite control registers that Vivado HLS writes (UG902: ap_start is bit 0,
# ap_done bit 1 and cleared on reading, auto_restart bit 7).
CONTROL = 0x00
COUNT, STREAM = 0x10, 0x18
"""Registers of fetch: instruction count and stream address."""
DONE = 0x18
"""Register of compute: 1 after FINISH."""
BASES = (("load", 0x10), ("load", 0x18), ("compute", 0x20), ("compute", 0x28), ("store", 0x10))
"""Registers of base addresses, left 0: programs have whole addresses."""

START, OVER, RESTART = 0x01, 0x02, 0x80
"""Bits of the control register."""

# Far more than any program takes by the estimate: what is not over by then hangs.
TIMEOUT_S = 10.0
# A precaution; VTA's own driver polls at once.
_SETTLE_S = 1e-6


@dataclass(frozen=True, eq=False)
class LoadedProgram:
    """A program in the board's memory.

    Attributes
    ----------
    program : VtaProgram
        Program with its addresses there.
    memory, stream : Buffer
        Memory that it works on, and its instructions.
    """

    program: VtaProgram
    memory: Buffer
    stream: Buffer


class Driver(Closable):
    """Runs programs, one at a time; a context manager.

    Parameters
    ----------
    config : Config
        Configuration of the bitstream.
    hardware : Hardware
    timeout_s : float
        Seconds for one program, by the clock on the wall.
    """

    def __init__(self, config: Config, hardware: Hardware, timeout_s: float = TIMEOUT_S) -> None:
        self.config, self.hardware, self.timeout_s = config, hardware, timeout_s
        self._registers = {module: hardware.registers(module) for module in MODULES}
        self._programs: list[LoadedProgram] = []

    def load(self, program: VtaProgram) -> LoadedProgram:
        """Put a program into the board's memory.

        Raises
        ------
        BoardError
            If it is too large, or the board gives memory that the accelerator does not reach.
        """
        memory = self._fill_buffer(program.memory)
        # The registers of base addresses are 0, so that the instructions themselves need physical addresses.
        relocated_program = program.relocate(memory.address)
        stream = self._fill_buffer(relocated_program.stream().reshape(-1).view(np.uint8))
        self._programs.append(LoadedProgram(relocated_program, memory, stream))
        return self._programs[-1]

    def _fill_buffer(self, values: npt.NDArray[Any]) -> Buffer:
        check_size(values.nbytes)
        buffer = self.hardware.allocate(values.nbytes)
        # Not before: only the board's allocator decides where a buffer lies.
        check_address(self.config, buffer.address, values.nbytes)
        buffer.array[:] = values
        buffer.flush()
        return buffer

    def run(self, program: LoadedProgram) -> None:
        """Run a program on its memory.

        Raises
        ------
        DeviceLost
            If it does not end in time; the message names the module that hangs.
        """
        # Outside of the turn, as the invalidation below: another stage may use the accelerator meanwhile.
        program.memory.flush()
        # The time begins when the turn does: a stage that waits for another one does not hang.
        with self.hardware.turn:
            deadline = time.monotonic() + self.timeout_s
            self._start(program)
            self._wait("fetch", CONTROL, OVER, deadline, program)
            # vta.cc sets the register to 0 with each instruction that compute begins, and to 1 by FINISH.
            self._wait("compute", DONE, 1, deadline, program)
        program.memory.invalidate()

    def _start(self, program: LoadedProgram) -> None:
        fetch = self._registers["fetch"]
        # The order is that of VTA's own driver: fetch first, for the other modules wait for its queues anyway.
        fetch.write(COUNT, len(program.program.instructions))
        fetch.write(STREAM, program.stream.address)
        # Each time, as VTA's own driver: another process may have used the registers since.
        for module, offset in BASES:
            self._registers[module].write(offset, 0)
        fetch.write(CONTROL, START)
        # They take one instruction per start.
        for module in MODULES[1:]:
            self._registers[module].write(CONTROL, START | RESTART)
        time.sleep(_SETTLE_S)

    def _wait(self, module: str, offset: int, bit: int, deadline: float, program: LoadedProgram) -> None:
        registers = self._registers[module]
        while not registers.read(offset) & bit:
            if time.monotonic() > deadline:
                raise DeviceLost(self._describe_hang(module, program))
            # As VTA's own driver yields: no timer, whose delay may be longer than a short program.
            time.sleep(0)

    def _describe_hang(self, module: str, program: LoadedProgram) -> str:
        from boards.vta.simulator.simulator import simulate

        # All four modules: the one that hangs often only waits for another one.
        controls = ", ".join(f"{name} {registers.read(CONTROL):#04x}" for name, registers in self._registers.items())
        # The simulator tells a program that can never end from a board that does not work.
        violations = simulate(program.program).violations
        judgement = f"its program is wrong ({violations[0]})" if violations else "its program is right by the simulator"
        symptom = "has not read all instructions" if module == "fetch" else "has not come to FINISH"
        return (
            f"VTA's module {module} hangs: it {symptom} of {len(program.program.instructions)} within "
            f"{self.timeout_s:g} s; {judgement}; control registers: {controls}; program the bitstream again"
        )

    def close(self) -> None:
        """Stop the modules and release memory and board."""
        with self.hardware.turn:
            for module in MODULES[1:]:
                # Without auto_restart (bit 7), a module stops with the instruction that it has.
                self._registers[module].write(CONTROL, 0)
        # After the modules, which might still read or write the memory.
        for program in self._programs:
            program.memory.free()
            program.stream.free()
        self._programs.clear()
        self.hardware.close()
