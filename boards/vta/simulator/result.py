"""Result, Violation and Cycles: immutable findings of a simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

KINDS = {
    "bounds": "an element outside of a scratchpad or of the memory",
    "deadlock": "modules wait for each other for ever",
    "finish": "FINISH is missing, doubled, or not known to be the last",
    "flag": "a dependence on a module that is not there",
    "hazard": "a micro-op reads what one shortly before it writes, while that is still on its way",
    "race": "two modules touch the same element, and no token says who is first",
    "stale": "what is stored was last written by a LOAD or a reset, which a board does not pass on to OUT",
    "token": "a token that nobody takes, and the next program would find",
    "undefined": "an element is used that nothing in the program has set",
    "unsupported": "the board does something else, or nothing",
}
"""Kinds of violations, with explanations."""


@dataclass(frozen=True)
class Violation:
    """A rule broken by a program.

    Attributes
    ----------
    kind : str
        Kind, one of `KINDS`.
    index : int
        The instruction; -1 for a program without any.
    instruction : str
        Disassembly of the instruction.
    message : str
        Description of the fault.
    """

    kind: str
    index: int
    instruction: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: instruction {self.index} ({self.instruction}): {self.message}"


@dataclass(frozen=True)
class Cycles:
    """Estimated cycles, by the model of `boards.vta.simulator.timing`.

    Attributes
    ----------
    load, compute, store : int
        Cycles in which the module works.
    total : int
        Cycles from the start to the end, the modules overlapping as the tokens let them.
    gemm : int
        Cycles that multiply.
    clock_hz : float
        Clock rate of the accelerator.
    """

    load: int
    compute: int
    store: int
    total: int
    gemm: int
    clock_hz: float

    @property
    def seconds(self) -> float:
        """The whole time."""
        return self.total / self.clock_hz

    @property
    def utilisation(self) -> float:
        """Share of time spent on products."""
        return self.gemm / self.total if self.total else 0.0


@dataclass(frozen=True, eq=False)
class Result:
    """The memory, violations and time of a program.

    Attributes
    ----------
    memory : uint8[n] or None
        The program's memory in the end; None where there are violations, because a board might hold anything then.
    violations : tuple of Violation
        Violations in the order of discovery.
    cycles : Cycles or None
        The estimated time; None for a program that never ends, or if nobody asked.
    """

    memory: npt.NDArray[np.uint8] | None
    violations: tuple[Violation, ...]
    cycles: Cycles | None
