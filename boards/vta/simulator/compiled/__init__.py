"""Compiled simulation of sound programs; reports only soundness of others."""

from __future__ import annotations

import weakref

import numpy as np
import numpy.typing as npt

from boards.vta.isa.program import VtaProgram
from boards.vta.simulator.compiled.table import Numbers, instruction_table

# Weakly, so that a table is gone with its program.
_tables: weakref.WeakKeyDictionary[VtaProgram, Numbers | None] = weakref.WeakKeyDictionary()
"""Tables by program. They depend on nothing in the program's memory, which may change from run to run."""


def execute(program: VtaProgram) -> npt.NDArray[np.uint8] | None:
    """Run from zeroed scratchpads and return the memory; None if unsound."""
    # Late: it needs TVM's compiler, which a board may lack.
    from boards.vta.simulator.compiled.interpreter import interpreter
    from boards.vta.simulator.compiled.state import allocate
    from pipeline.tvm.access import tvm

    if program not in _tables:
        _tables[program] = instruction_table(program)
    table = _tables[program]
    if table is None:
        return None
    arrays = allocate(program.config, table, program.memory)
    interpreter(program.config)(*(tvm.runtime.from_dlpack(array) for array in arrays.values()))
    return None if arrays["wrong"][0] else arrays["memory"]


def is_available() -> bool:
    """Test for TVM's compiler; boards may have the runtime alone."""
    from pipeline.tvm.access import tvm

    return bool(tvm.runtime.enabled("llvm"))
