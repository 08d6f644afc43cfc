"""Interpreter: compiled code for an instruction table, step by step.

No two micro-ops are ever taken together, so it does not matter which elements they share.  On the way the code looks
for what depends on micro-ops and may be wrong, elements outside of a scratchpad and races, and tells whether there is
any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812 - its usual name

from boards.vta.isa.config import VERSIONS, Config
from boards.vta.isa.instructions import AluOpcode
from boards.vta.simulator.compiled import loops, transfers
from boards.vta.simulator.compiled.code import Code, when
from boards.vta.simulator.compiled.table import Action, alu_action
from pipeline.executor.host_target import host_target
from pipeline.system.native_output import quietly
from pipeline.tvm.access import compiler_lock, tvm
from pipeline.tvm.statements import number

_LOADS = (Action.LOAD_UOP, Action.LOAD_WGT, Action.LOAD_INP, Action.LOAD_ACC, Action.LOAD_ACC_8BIT)


def interpreter(config: Config) -> Callable[..., None]:
    """Return an accelerator's interpreter, over the arrays of `state.allocate`."""
    # Tables are of numbers already, so that the board and the instructions' encoding make no difference.
    return _compile(replace(config, target="sim", hw_ver=VERSIONS[-1]))


@lru_cache(maxsize=8)
def _compile(config: Config) -> Callable[..., None]:
    # Stages may be loaded in several threads, and TVM's passes are not made for that.
    with compiler_lock:
        module = tvm.IRModule({"main": _function(config)})
        executable = quietly(lambda: tvm.compile(module, target=host_target()))
    function: Callable[..., None] = executable["main"]
    return function


def _function(config: Config) -> Any:
    with IRBuilder() as builder, T.prim_func():
        T.func_name("main")
        code = Code(config)
        # After a failure nothing more is executed: indices may be anything then.
        with T.serial(number(0), code.instructions) as index, when(code["wrong"][number(0)] == 0):
            action = code.begin(index)
            # A chain of comparisons, for TVM's tensor IR has no switch.
            for value, write in _actions(code).items():
                with when(action == number(value)):
                    write()
    return builder.get()


def _actions(code: Code) -> dict[int, Callable[[], None]]:
    """Return the writers of the actions."""
    writers: dict[int, Callable[[], None]] = {action: partial(transfers.load, code, action) for action in _LOADS}
    writers[Action.STORE] = partial(transfers.store, code)
    writers[Action.GEMM] = partial(loops.gemm, code)
    writers[Action.RESET] = partial(loops.reset, code)
    for opcode in AluOpcode:
        for use_imm in (False, True):
            writers[alu_action(opcode, use_imm=use_imm)] = partial(loops.alu, code, opcode, use_imm=use_imm)
    return writers
