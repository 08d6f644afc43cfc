"""simulate: executes a program bit for bit, as the functional simulator or as strictly as a board."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt

from boards.vta import accesses, disassembly, endings, rules, timing
from boards.vta.config import Memory
from boards.vta.instructions import Alu, AluOpcode, Gemm, Instruction, Load, Store
from boards.vta.machine import Machine
from boards.vta.order import Clock, Conflict, Order
from boards.vta.patterns import Piece, pieces
from boards.vta.program import Program
from boards.vta.result import Result, Violation
from boards.vta.rules import Broken
from boards.vta.scratchpads import Scratchpads

HAZARD_DISTANCE = 8
"""Micro-ops from writing an element of ACC to reading it; how many a board needs, at least 3, is not documented."""

_SWITCH = 0.2


def simulate(
    program: Program,
    mode: Literal["functional", "hardware"] = "hardware",
    *,
    seed: int | None = None,
    hazard_distance: int = HAZARD_DISTANCE,
    timed: bool = True,
) -> Result:
    """Execute a program, and report what is wrong with it.

    What is wrong between modules (races, deadlocks, tokens) does not depend on how they interleave: one run finds it.

    Parameters
    ----------
    program : Program
        What to execute; its memory is left alone.
    mode : {"functional", "hardware"}
        ``"functional"`` computes what VTA's functional simulator does.  ``"hardware"`` also reports whatever a board
        does otherwise: what it lacks, what it leaves stale in OUT, hazards of its pipeline, undefined elements,
        queues that are too short.
    seed : int, optional
        Of a random interleaving of the modules, and random contents of the scratchpads before; without one,
        instructions execute in their order, on zeros.
    hazard_distance : int
        In micro-ops; what is nearer is a hazard.
    timed : bool
        Whether to estimate the time as well.

    Returns
    -------
    Result
        The memory if nothing is wrong, or the violations; and the estimated cycles.
    """
    run = _Run(program, seed, hazard_distance, hardware=mode == "hardware")
    run.execute()
    violations = tuple(run.violations.values())
    cycles = timing.estimate(program) if timed else None
    return Result(None if violations else run.memory, violations, cycles)


class _Run:
    def __init__(self, program: Program, seed: int | None, hazard_distance: int, *, hardware: bool) -> None:
        self.program, self.config = program, program.config
        self.memory = program.memory.copy()
        self.violations: dict[tuple[str, int], Violation] = {}
        self._hardware, self._hazard_distance = hardware, hazard_distance
        self._random = None if seed is None else random.Random(seed)  # noqa: S311
        self._favourites = [0, 1, 2]
        self._pads = Scratchpads(self.config, seed)
        self._order = Order(accesses.sizes(self.config, self.memory.size))

    def execute(self) -> None:
        """Execute until every module is at its end, or waits."""
        instructions = self.program.instructions
        machine = Machine[Clock](instructions, bounded=self._hardware)
        while ready := machine.ready():
            index = self._choice(ready)
            each = instructions[index]
            tokens = machine.take(index)
            self._order.begin(each.stage, index, [token.payload for token in tokens])
            self._instruction(index, each)
            machine.give(index, self._order.clock(each.stage))
        for index, broken in endings.broken(instructions, machine, self._order, hardware=self._hardware):
            self._report(index, broken)

    def _choice(self, ready: list[int]) -> int:
        """Return the first instruction, or, with a seed, let one module run ahead of the others for a while."""
        if self._random is None:
            return min(ready)
        if self._random.random() < _SWITCH:
            self._random.shuffle(self._favourites)
        return min(ready, key=lambda index: self._favourites[self.program.instructions[index].stage])

    def _instruction(self, index: int, each: Instruction) -> None:
        start = self._start(each)
        found = list(rules.broken(self.config, each, start, self.memory.size, hardware=self._hardware))
        for broken in found:
            self._report(index, broken)
        if any(kind == "bounds" for kind, _ in found):
            return
        if isinstance(each, Load | Store):
            self._transfer(index, each, start)
        elif isinstance(each, Gemm | Alu):
            self._loops(index, each)

    def _start(self, each: Instruction) -> int:
        """Return where in memory a transfer begins."""
        if not isinstance(each, Load | Store):
            return 0
        memory = Memory.OUT if isinstance(each, Store) else each.memory_type
        return each.dram_base * self.config.element_bytes(memory) - self.program.base

    def _transfer(self, index: int, each: Load | Store, start: int) -> None:
        self._note(index, each, accesses.of_transfer(self.config, each, start))
        if not each.x_size:
            return
        if isinstance(each, Load):
            self._pads.load(each, self.memory, start)
            return
        self._check_stored(index, each)
        self._pads.store(each, self.memory, start)

    def _loops(self, index: int, each: Gemm | Alu) -> None:
        if not each.count:
            return
        if not self._defined(index, Memory.UOP, np.arange(each.uop_bgn, each.uop_end)):
            return
        uops = self._pads.uop[each.uop_bgn : each.uop_end]
        for piece in pieces(self.config, each, uops, self._hazard_distance):
            if self._inside(index, each, piece):
                self._check_piece(index, each, piece)
                self._compute(index, each, piece)

    def _compute(self, index: int, each: Gemm | Alu, piece: Piece) -> None:
        self._note(index, each, accesses.of_piece(each, piece))
        if isinstance(each, Alu):
            least, largest = self._pads.combine(each, piece)
            if self._hardware and each.alu_opcode is AluOpcode.SHR:
                for broken in rules.shifts(least, largest):
                    self._report(index, broken)
        elif each.reset_reg:
            self._pads.reset(piece)
        else:
            self._pads.accumulate(piece)

    def _inside(self, index: int, each: Gemm | Alu, piece: Piece) -> bool:
        source = Memory.ACC if isinstance(each, Alu) else Memory.INP
        uses = ((Memory.ACC, piece.dsts), (source, piece.srcs), (Memory.WGT, piece.wgts))
        found = [
            (memory, int(used[-1])) for memory, used in uses if used.size and used[-1] >= self.config.depth(memory)
        ]
        for memory, last in found:
            self._report(index, ("bounds", f"element {last} of {memory.name}, which has {self.config.depth(memory)}"))
        return not found

    def _check_piece(self, index: int, each: Gemm | Alu, piece: Piece) -> None:
        if not self._hardware:
            return
        if piece.distance < self._hazard_distance:
            message = f"ACC {piece.hazard} is read at a distance of {piece.distance} from the micro-op that writes it"
            self._report(index, ("hazard", f"{message}; let it be at least {self._hazard_distance}"))
        self._defined(index, Memory.ACC if isinstance(each, Alu) else Memory.INP, piece.srcs)
        self._defined(index, Memory.WGT, piece.wgts)
        if isinstance(each, Alu) or not each.reset_reg:
            self._defined(index, Memory.ACC, piece.dsts)

    def _defined(self, index: int, memory: Memory, used: npt.NDArray[np.int64]) -> bool:
        missing = ~self._pads.defined[memory][used]
        if not (self._hardware and missing.any()):
            return True
        self._report(index, ("undefined", f"nothing has been written to {memory.name} {used[missing.argmax()]}"))
        return False

    def _check_stored(self, index: int, each: Store) -> None:
        stop = each.sram_base + each.y_size * each.x_size
        self._defined(index, Memory.ACC, np.arange(each.sram_base, stop))
        stale = ~self._pads.defined[Memory.OUT][each.sram_base : stop]
        if self._hardware and stale.any():
            element = each.sram_base + int(stale.argmax())
            self._report(index, ("stale", f"no GEMM (but for resets) or ALU was the last to write ACC {element}"))

    def _note(self, index: int, each: Instruction, found: Iterator[accesses.Access]) -> None:
        for access in found:
            note = self._order.write if access.writes else self._order.read
            if conflict := note(each.stage, access.place, access.where):
                self._report(index, ("race", self._told(access, conflict)))

    def _told(self, access: accesses.Access, conflict: Conflict) -> str:
        unit = accesses.grain(self.config) if access.place == accesses.DRAM else 1
        what = "byte" if access.place == accesses.DRAM else access.place
        other = disassembly.text(self.config, self.program.instructions[conflict.other])
        base = self.program.base if access.place == accesses.DRAM else 0
        return (
            f"{'writes' if access.writes else 'reads'} {what} {conflict.element * unit + base}, which instruction "
            f"{conflict.other} ({other}) {'writes' if conflict.wrote else 'reads'}, and no token orders the two"
        )

    def _report(self, index: int, broken: Broken) -> None:
        """Keep the first violation of each kind for an instruction."""
        kind, message = broken
        text = disassembly.text(self.config, self.program.instructions[index]) if index >= 0 else "none"
        self.violations.setdefault((kind, index), Violation(kind, index, " ".join(text.split()), message))
