"""Epilogues: what is done with the sums of a tile, between the loops over its products."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tools.arm import analyser
from tools.arm.loops import Instruction, Loop, branch_target, parse

_SYMBOL = re.compile(r"[0-9a-f]+ <(.+)>:$")
_STORE = re.compile(r"st(r|p|ur|1|nt1)b?h?$")


def functions_of(library: Path) -> dict[str, list[Instruction]]:
    """Return the instructions of an object file's functions by name."""
    command = [analyser.tool("llvm-objdump"), "--disassemble", "--no-show-raw-insn", str(library)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return read_functions(text.splitlines())


def read_functions(lines: Iterable[str]) -> dict[str, list[Instruction]]:
    """Return the instructions of a disassembly by function."""
    functions: dict[str, list[Instruction]] = {}
    instructions: list[Instruction] = []
    for line in lines:
        if match := _SYMBOL.match(line):
            instructions = functions.setdefault(match[1], [])
        elif instruction := parse(line):
            instructions.append(instruction)
    return functions


def epilogue(function: Sequence[Instruction], loop: Loop) -> Loop | None:
    """Return what stands around an innermost loop in the smallest loop that stores vectors, inner loops left out.

    None if there is none: where a loop stores its results itself they are a part of it.
    """
    ranges = list(_loop_ranges(function))
    around = sorted(each for each in ranges if each[0] <= loop.start and each[1] > loop.end)
    for start, end in reversed(around):
        inner = [each for each in ranges if start <= each[0] and each[1] < end]
        code = tuple(
            instruction
            for instruction in function
            if start <= instruction.address <= end
            and not any(first <= instruction.address <= last for first, last in inner)
        )
        if any(_stores_vector(instruction) for instruction in code):
            return Loop(loop.function, code)
    return None


def _loop_ranges(function: Sequence[Instruction]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last address of all loops."""
    for instruction in function:
        target = branch_target(instruction)
        if target is not None and function[0].address <= target <= instruction.address:
            yield target, instruction.address


def _stores_vector(instruction: Instruction) -> bool:
    operands = instruction.operands
    return bool(_STORE.match(instruction.mnemonic) and re.match(r"\{? ?[qdsbhv]\d", operands)) and "[sp" not in operands
