"""Simulate: executes a program bit for bit, leniently or like a board."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from boards.vta.isa import disassembly
from boards.vta.isa.config import MemoryType
from boards.vta.isa.instructions import Alu, AluOpcode, Gemm, Instruction, LoadInstruction, StoreInstruction
from boards.vta.isa.program import VtaProgram
from boards.vta.simulator import accesses, checks, timing
from boards.vta.simulator import compiled as compiled_simulation
from boards.vta.simulator.access_patterns import PIECE_SIZE, MicroOpPiece, pieces
from boards.vta.simulator.checks import BrokenRule
from boards.vta.simulator.result import Result, Violation
from boards.vta.simulator.scratchpads import Scratchpads
from boards.vta.simulator.token_queues import TokenQueues
from boards.vta.simulator.vector_clocks import Clock, Conflict, VectorClocks

HAZARD_DISTANCE = 8
"""Micro-ops from writing an element of ACC to reading it; how many a board needs, at least 3, is not documented."""

# Rare enough that a module runs ahead by several instructions, which is when races show.
_SWITCH = 0.2


def simulate(  # noqa: PLR0913 - all but the first two by keyword
    program: VtaProgram,
    mode: Literal["functional", "hardware"] = "hardware",
    *,
    seed: int | None = None,
    hazard_distance: int = HAZARD_DISTANCE,
    piece_size: int = PIECE_SIZE,
    estimate_cycles: bool = True,
    run_compiled: bool = True,
) -> Result:
    """Execute a program and report its violations.

    Faults between modules (races, deadlocks, tokens) do not depend on how they interleave: one run finds them.

    Parameters
    ----------
    program : VtaProgram
        Program to execute; its memory is left alone.
    mode : {"functional", "hardware"}
        ``"functional"`` computes what VTA's functional simulator does.  ``"hardware"`` also reports whatever a board
        does otherwise: what it lacks, what it leaves stale in OUT, hazards of its pipeline, undefined elements,
        queues that are too short.
    seed : int, optional
        Seed of a random interleaving of the modules, and of random contents of the scratchpads before; without one,
        instructions execute in their order, on zeros.
    hazard_distance : int
        Distance in micro-ops below which a dependence is a hazard.
    piece_size : int
        Micro-ops that NumPy computes at once, which bounds the memory that it takes.
    estimate_cycles : bool
        True estimates the time as well.
    run_compiled : bool
        True if a functional simulation without a seed may run in compiled code, which is many times as fast and finds
        the same.  Where it finds anything wrong, or TVM's compiler is not here, NumPy does it over.

    Returns
    -------
    Result
        The memory if nothing is wrong, or the violations; and the estimated cycles.
    """
    cycles = timing.estimate(program) if estimate_cycles else None
    # Compiled code keeps the stream's order and begins with zeros; it finds that something is wrong, but not what.
    if mode == "functional" and seed is None and run_compiled and compiled_simulation.is_available():
        memory = compiled_simulation.execute(program)
        if memory is not None:
            return Result(memory, (), cycles)
    run = ProgramExecution(program, seed, hazard_distance, piece_size, hardware=mode == "hardware")
    run.execute()
    violations = tuple(run.violations.values())
    return Result(None if violations else run.memory, violations, cycles)


class ProgramExecution:
    """One execution by NumPy, instruction by instruction.

    Parameters
    ----------
    program, seed, hazard_distance, piece_size
        Arguments of `simulate`.
    hardware : bool
        True is as strict as a board.

    Attributes
    ----------
    memory : uint8[n]
        The program's memory so far, whatever is wrong with the program.
    violations : dict
        Violations by kind and instruction.
    """

    def __init__(
        self,
        program: VtaProgram,
        seed: int | None = None,
        hazard_distance: int = HAZARD_DISTANCE,
        piece_size: int = PIECE_SIZE,
        *,
        hardware: bool,
    ) -> None:
        self.program, self.config = program, program.config
        self.memory = program.memory.copy()
        self.violations: dict[tuple[str, int], Violation] = {}
        self._hardware, self._hazard_distance, self._piece_size = hardware, hazard_distance, piece_size
        self._random = None if seed is None else random.Random(seed)  # noqa: S311
        # Numbers of modules by rank; shuffled now and then if there is a seed.
        self._favourites = [0, 1, 2]
        self._pads = Scratchpads(self.config, seed)
        self._order = VectorClocks(accesses.memory_sizes(self.config, self.memory.size))

    def execute(self) -> None:
        """Execute until every module ends or waits."""
        instructions = self.program.instructions
        queues = TokenQueues[Clock](instructions, with_limits=self._hardware)
        while ready := queues.ready():
            index = self._choice(ready)
            instruction = instructions[index]
            # Tokens are given in the end, so that whoever takes one knows all that its giver has done.
            tokens = queues.take(index)
            self._order.begin(instruction.module, index, [token.payload for token in tokens])
            self._execute_instruction(index, instruction)
            queues.give(index, self._order.clock(instruction.module))
        for index, rule in checks.program_violations(instructions, queues, self._order, hardware=self._hardware):
            self._report(index, rule)

    def _choice(self, ready: list[int]) -> int:
        """Choose the first ready instruction, or by seed a module running ahead."""
        if self._random is None:
            return min(ready)
        if self._random.random() < _SWITCH:
            self._random.shuffle(self._favourites)
        return min(ready, key=lambda index: self._favourites[self.program.instructions[index].module])

    def _execute_instruction(self, index: int, instruction: Instruction) -> None:
        start = self.program.start_of(instruction)
        rules = list(
            checks.instruction_violations(self.config, instruction, start, self.memory.size, hardware=self._hardware)
        )
        for rule in rules:
            self._report(index, rule)
        # What lies outside cannot be executed; all else that is wrong can, and may bring more to light.
        if any(kind == "bounds" for kind, _ in rules):
            return
        if isinstance(instruction, LoadInstruction | StoreInstruction):
            self._transfer(index, instruction, start)
        elif isinstance(instruction, Gemm | Alu):
            self._loops(index, instruction)

    def _transfer(self, index: int, transfer: LoadInstruction | StoreInstruction, start: int) -> None:
        self._note(index, transfer, accesses.transfer_accesses(self.config, transfer, start))
        if not transfer.x_size:
            return
        if isinstance(transfer, LoadInstruction):
            self._pads.load(transfer, self.memory, start)
            return
        self._check_store(index, transfer)
        self._pads.store(transfer, self.memory, start)

    def _loops(self, index: int, instruction: Gemm | Alu) -> None:
        if not instruction.count:
            return
        # Undefined micro-ops have no indices that would be worth following.
        if not self._check_defined(index, MemoryType.UOP, np.arange(instruction.uop_bgn, instruction.uop_end)):
            return
        uops = self._pads.uop[instruction.uop_bgn : instruction.uop_end]
        for piece in pieces(self.config, instruction, uops, self._hazard_distance, self._piece_size):
            if self._check_inside(index, instruction, piece):
                self._check_piece(index, instruction, piece)
                self._compute(index, instruction, piece)

    def _compute(self, index: int, instruction: Gemm | Alu, piece: MicroOpPiece) -> None:
        self._note(index, instruction, accesses.piece_accesses(instruction, piece))
        if isinstance(instruction, Alu):
            smallest, largest = self._pads.combine(instruction, piece)
            if self._hardware and instruction.alu_opcode is AluOpcode.SHR:
                for rule in checks.shift_violations(smallest, largest):
                    self._report(index, rule)
        elif instruction.reset_reg:
            self._pads.reset(piece)
        else:
            self._pads.accumulate(piece)

    def _check_inside(self, index: int, instruction: Gemm | Alu, piece: MicroOpPiece) -> bool:
        source = MemoryType.ACC if isinstance(instruction, Alu) else MemoryType.INP
        operands = ((MemoryType.ACC, piece.dsts), (source, piece.srcs), (MemoryType.WGT, piece.wgts))
        # Elements of a piece are sorted, so that the last one is the largest.
        violations = [
            (memory, int(elements[-1]))
            for memory, elements in operands
            if elements.size and elements[-1] >= self.config.depth(memory)
        ]
        for memory, largest in violations:
            self._report(
                index, ("bounds", f"element {largest} of {memory.name}, which has {self.config.depth(memory)}")
            )
        return not violations

    def _check_piece(self, index: int, instruction: Gemm | Alu, piece: MicroOpPiece) -> None:
        if not self._hardware:
            return
        if piece.distance < self._hazard_distance:
            message = f"ACC {piece.hazard} is read at a distance of {piece.distance} from the micro-op that writes it"
            self._report(index, ("hazard", f"{message}; let it be at least {self._hazard_distance}"))
        self._check_defined(index, MemoryType.ACC if isinstance(instruction, Alu) else MemoryType.INP, piece.srcs)
        self._check_defined(index, MemoryType.WGT, piece.wgts)
        # A reset does not care what ACC held.
        if isinstance(instruction, Alu) or not instruction.reset_reg:
            self._check_defined(index, MemoryType.ACC, piece.dsts)

    def _check_defined(self, index: int, memory: MemoryType, elements: npt.NDArray[np.int64]) -> bool:
        is_undefined = ~self._pads.is_defined[memory][elements]
        if not (self._hardware and is_undefined.any()):
            return True
        self._report(
            index, ("undefined", f"nothing has been written to {memory.name} {elements[is_undefined.argmax()]}")
        )
        return False

    def _check_store(self, index: int, store: StoreInstruction) -> None:
        # A STORE has no padding: its elements follow each other in the scratchpad.
        stop = store.sram_base + store.y_size * store.x_size
        self._check_defined(index, MemoryType.ACC, np.arange(store.sram_base, stop))
        is_stale = ~self._pads.is_defined[MemoryType.OUT][store.sram_base : stop]
        if self._hardware and is_stale.any():
            element = store.sram_base + int(is_stale.argmax())
            self._report(index, ("stale", f"no GEMM (but for resets) or ALU was the last to write ACC {element}"))

    def _note(self, index: int, instruction: Instruction, access_list: Iterator[accesses.Access]) -> None:
        for access in access_list:
            note = self._order.write if access.writes else self._order.read
            if conflict := note(instruction.module, access.memory_name, access.elements):
                self._report(index, ("race", self._describe_race(access, conflict)))

    def _describe_race(self, access: accesses.Access, conflict: Conflict) -> str:
        unit = accesses.grain_bytes(self.config) if access.memory_name == accesses.DRAM else 1
        unit_name = "byte" if access.memory_name == accesses.DRAM else access.memory_name
        earlier = disassembly.text(self.config, self.program.instructions[conflict.instruction])
        base = self.program.base if access.memory_name == accesses.DRAM else 0
        return (
            f"{'writes' if access.writes else 'reads'} {unit_name} {conflict.element * unit + base}, which instruction "
            f"{conflict.instruction} ({earlier}) {'writes' if conflict.wrote else 'reads'}, and no token orders the two"
        )

    def _report(self, index: int, rule: BrokenRule) -> None:
        """Record an instruction's first violation per kind."""
        kind, message = rule
        text = disassembly.text(self.config, self.program.instructions[index]) if index >= 0 else "none"
        self.violations.setdefault((kind, index), Violation(kind, index, " ".join(text.split()), message))
