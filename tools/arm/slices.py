"""Slices of loops: the instructions that products need, without what is done with their sums."""

from __future__ import annotations

import re
from dataclasses import replace

from tools.arm.loops import Instruction, Loop, is_product

_REGISTER = re.compile(r"\b([vqdshbwx])(\d+)\b")
# What writes no register, beside memory and flags.
_WRITES_NONE = re.compile(r"st|prf|cmp|cmn|tst|b$|b\.|cb|tb|nop")


def products_part(loop: Loop) -> Loop:
    """Return a loop that stores results without the instructions that no product needs; other loops as they are.

    Values of the turn before are not followed.
    """
    if not any(_stores(instruction) and not _on_stack(instruction) for instruction in loop.instructions):
        return loop
    needed, instructions = set[str](), list[Instruction]()
    last = loop.instructions[-1]
    for instruction in reversed(loop.instructions):
        written, read = _registers(instruction)
        is_spill = _stores(instruction) and _on_stack(instruction)
        if instruction is last or is_product(instruction) or is_spill or written & needed:
            instructions.append(instruction)
            # Sums are added to, so that what they were before is needed too.
            needed = (needed - written) | read | (written if is_product(instruction) else set())
    return replace(loop, instructions=tuple(reversed(instructions)))


def _stores(instruction: Instruction) -> bool:
    return instruction.mnemonic.startswith("st")


def _on_stack(instruction: Instruction) -> bool:
    return "[sp" in instruction.operands


def _registers(instruction: Instruction) -> tuple[set[str], set[str]]:
    """Return the registers that an instruction writes, and those it reads."""
    mnemonic, operands = instruction.mnemonic, instruction.operands
    names = [f"{'x' if kind in 'wx' else 'v'}{number}" for kind, number in _REGISTER.findall(operands)]
    if _WRITES_NONE.match(mnemonic) or not names:
        return set(), set(names)
    count = 2 if mnemonic == "ldp" else 1
    written, read = set(names[:count]), set(names[count:])
    # An address may be moved on as it is used.
    if mnemonic.startswith("ld") and ("]!" in operands or "], " in operands):
        written |= read
    return written, read
