"""Compiled simulation of sound programs; of any other it tells only that something is wrong."""

from __future__ import annotations

import weakref

import numpy as np
import numpy.typing as npt

from boards.vta.isa.program import VtaProgram
from boards.vta.simulator.compiled.table import Numbers, instruction_table

# Weakly, so that a table is gone with its program.
_tables: weakref.WeakKeyDictionary[VtaProgram, Numbers | None] = weakref.WeakKeyDictionary()
"""Nothing in a table depends on what the program's memory holds, which may change from run to run."""


def execute(program: VtaProgram) -> npt.NDArray[np.uint8] | None:
    """Return the memory in the end, from scratchpads of zeros; None if something is wrong with the program."""
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
    interpreter(program.config)(*(tvm.runtime.from_dlpack(each) for each in arrays.values()))
    return None if arrays["wrong"][0] else arrays["memory"]


def is_available() -> bool:
    """Test that TVM's compiler is here; a board may have the runtime alone."""
    from pipeline.tvm.access import tvm

    return bool(tvm.runtime.enabled("llvm"))
