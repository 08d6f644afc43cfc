"""Innermost loops of machine code, as LLVM's disassembler prints it, and what they multiply."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

# Instructions between a branch and its target.  The largest tiles that are written out have about 600.
LIMIT = 1500
# Addresses that a branch back may reach: instructions of Arm have four bytes, those of AVX-512 up to eleven.
_REACH = 11 * LIMIT

_LINE = re.compile(r"\s*([0-9a-f]+):\s+(\S+)\s*(.*)")
_SYMBOL = re.compile(r"[0-9a-f]+ <(.+)>:$")
_TARGET = re.compile(r"0x([0-9a-f]+)")
# Conditional branches, and the unconditional ones that a loop may end with.
_BRANCH = re.compile(r"(b|b\.\w+|cbn?z|tbn?z|j\w+)$")
# Code without frame pointers uses x29 and rbp for anything.
_STACK = re.compile(r"\[sp\b|\(%rsp\b")
# What `_products` may count: one look at a line instead of all that reads it.
_MULTIPLIER = re.compile(r"\s(fml|fmadd|[su]m(lal|ull)|mla|[su]{1,2}dot|[su]{1,2}mmla|vfmadd|vpdp)")
_ARRANGEMENT = re.compile(r"v\d+\.(\d+)([bhsd])")
_FULL_WIDTH = re.compile(r"v\d+\.(4s|8h|2d)\b")
_X86_WIDTH = {"x": 4, "y": 8, "z": 16}

# Instruction -> the kind of its products, and how many it adds up in each lane of its result.
_PRODUCTS = {
    "fmla": ("", 1),
    **dict.fromkeys(("sdot", "udot", "usdot", "sudot"), ("dot", 4)),
    **dict.fromkeys(("smmla", "ummla", "usmmla"), ("mmla", 8)),
    **dict.fromkeys((f"{sign}{verb}{half}" for sign in "su" for verb in ("mlal", "mull") for half in ("", "2")),
                    ("mlal", 1)),
    "mla": ("mlal", 1),
}  # fmt: skip


class Instruction(NamedTuple):
    """One line of a disassembly."""

    address: int
    mnemonic: str
    operands: str


@dataclass(frozen=True)
class Loop:
    """Innermost loop, from its first instruction to its branch back.

    Attributes
    ----------
    function : str
        Symbol before it; empty where there is none.
    instructions : tuple of Instruction
    """

    function: str
    instructions: tuple[Instruction, ...]

    @cached_property
    def products(self) -> Counter[str]:
        """Multiply-adds of one turn by kind: ``float32``, ``float16``, ``dot`` (bytes in fours), ``mlal``, ``mmla``."""
        products: Counter[str] = Counter()
        firsts = dict[str, str]()
        for instruction in self.instructions:
            kind, count = _products(instruction)
            products[kind] += count
            # A product that others are added to is one of them.
            target = instruction.operands.partition(",")[0]
            if firsts.pop(target, "") and count:
                products[kind] += count
            if instruction.mnemonic == "fmul":
                firsts[target] = instruction.mnemonic
        del products[""]
        return products

    @property
    def start(self) -> int:
        """Address of the first instruction."""
        return self.instructions[0].address

    @property
    def end(self) -> int:
        """Address of the last instruction."""
        return self.instructions[-1].address

    @property
    def macs(self) -> int:
        """Multiply-adds of one turn, of all kinds."""
        return sum(self.products.values())

    @property
    def kind(self) -> str:
        """Kind of most of its products; empty without any."""
        return max(self.products, key=lambda kind: self.products[kind], default="")

    @property
    def sums(self) -> int:
        """Registers that products are added up in."""
        # Where products are added up in 16 bits first, these are no sums yet.
        name = "sadalp" if any(each.mnemonic == "sadalp" for each in self.instructions) else ""
        adding = [each for each in self.instructions if (each.mnemonic == name if name else _products(each)[1])]
        return len({operands.partition(".")[0] for _, _, operands in adding})

    @property
    def multipliers(self) -> int:
        """Instructions that multiply and add."""
        return sum(bool(_products(instruction)[1]) for instruction in self.instructions)

    @property
    def full_width(self) -> int:
        """Products of floats in 128 bits."""
        return sum(
            mnemonic in {"fmla", "fmul"} and bool(_FULL_WIDTH.match(operands))
            for _, mnemonic, operands in self.instructions
        )

    @property
    def loads(self) -> int:
        """Instructions that load; one that does so beside its arithmetic counts too."""
        return sum(map(_is_load, self.instructions))

    @property
    def spills(self) -> int:
        """Loads and stores of vectors on the stack."""
        return sum(
            bool(_STACK.search(operands)) and bool(re.search(r"\b[qdsv]\d|%[xyz]mm", operands))
            for _, _, operands in self.instructions
        )

    def assembly(self) -> str:
        """Return it as assembler text, whose branches all lead to its begin."""
        return "\n".join(_assembly(instruction) for instruction in self.instructions)


def innermost_loops(lines: Iterable[str]) -> Iterator[Loop]:
    """Yield the loops of a disassembly that have no other loop inside, and that multiply and add."""
    last_loop: Loop | None = None
    for loop in _loops(lines):
        # A loop that is left in its middle may end behind the one around it, but begins inside of that.
        if last_loop and not (last_loop.function == loop.function and loop.start <= last_loop.end):
            yield last_loop
        last_loop = loop
    if last_loop:
        yield last_loop


def _loops(lines: Iterable[str]) -> Iterator[Loop]:
    """Yield the loops that multiply and add, and have none inside that ends before them."""
    function, window, last_start, multiplier = "", deque[str](maxlen=LIMIT), -1, -LIMIT
    for number, line in enumerate(lines):
        if match := _SYMBOL.match(line):
            function, last_start = match[1], -1
            window.clear()
            continue
        window.append(line)
        if _MULTIPLIER.search(line):
            multiplier = number
        # Most of a library multiplies nothing, and is not worth to be read closer.
        elif number - multiplier < LIMIT and (loop := _loop(function, window, last_start)):
            last_start = loop.start
            if loop.macs and not _calls(loop):
                yield loop


def _loop(function: str, window: Sequence[str], last_start: int) -> Loop | None:
    """Return the loop that the last line ends; None if there is none, or one that holds the last loop."""
    branch = parse(window[-1])
    target = branch_target(branch) if branch else None
    # A loop that begins before the last one does has that inside.
    if branch is None or target is None or not max(branch.address - _REACH, last_start + 1) <= target <= branch.address:
        return None
    instructions = list[Instruction]()
    for line in reversed(window):
        if instruction := parse(line):
            instructions.append(instruction)
            if instruction.address == target:
                return Loop(function, tuple(reversed(instructions)))
    return None


def parse(line: str) -> Instruction | None:
    """Return the instruction of a line, None if it has none."""
    match = _LINE.match(line)
    if match is None:
        return None
    # Remarks follow behind two slashes, or, of x86, a sharp, with which Arm's numbers begin.
    remark = " #" if "%" in match[3] else "//"
    return Instruction(int(match[1], 16), match[2], match[3].partition(remark)[0].strip())


def branch_target(instruction: Instruction) -> int | None:
    """Return the address that a branch leads to, None for other instructions."""
    if not _BRANCH.match(instruction.mnemonic):
        return None
    match = _TARGET.search(instruction.operands.rpartition(",")[2])
    return int(match[1], 16) if match else None


def _calls(loop: Loop) -> bool:
    return any(mnemonic in {"bl", "blr", "ret"} or mnemonic.startswith("call") for _, mnemonic, _ in loop.instructions)


def is_product(instruction: Instruction) -> bool:
    """Return whether an instruction multiplies and adds, or adds up products."""
    return bool(_products(instruction)[1]) or instruction.mnemonic == "sadalp"


def _products(instruction: Instruction) -> tuple[str, int]:
    """Return the kind and the number of an instruction's multiply-adds."""
    mnemonic, operands = instruction.mnemonic, instruction.operands
    if mnemonic.startswith("v"):
        return _x86_products(mnemonic, operands)
    if mnemonic == "fmadd" and operands.startswith("s"):
        return "float32", 1
    match, entry = _ARRANGEMENT.match(operands), _PRODUCTS.get(mnemonic)
    if match is None or entry is None:
        return "", 0
    kind = entry[0] or {"s": "float32", "h": "float16"}.get(match[2], "")
    return kind, entry[1] * int(match[1]) if kind else 0


def _x86_products(mnemonic: str, operands: str) -> tuple[str, int]:
    match = re.search(r"%([xyz])mm\d+(?: \{.*\})?$", operands)
    width = _X86_WIDTH[match[1]] if match else 0
    if mnemonic.startswith("vfmadd") and mnemonic.endswith("ps"):
        return "float32", width
    if mnemonic.startswith("vfmadd") and mnemonic.endswith("ss"):
        return "float32", 1
    return ("dot", 4 * width) if mnemonic.startswith("vpdp") else ("", 0)


def _is_load(instruction: Instruction) -> bool:
    mnemonic, operands = instruction.mnemonic, instruction.operands
    if operands.find("%") >= 0:
        # AT&T's order: what is read comes first.  An address is computed without a load.
        return "(" in operands and not operands.endswith(")") and not mnemonic.startswith(("lea", "prefetch"))
    return mnemonic.startswith("ld")


def _assembly(instruction: Instruction) -> str:
    mnemonic, operands = instruction.mnemonic, instruction.operands
    if _BRANCH.match(mnemonic):
        return f"{mnemonic} {', '.join([*operands.split(',')[:-1], '.Lloop'])}"
    # Addresses of functions' own data mean nothing in a loop that stands alone.
    if mnemonic in {"adr", "adrp"}:
        return f"mov {operands.split(',')[0]}, #0"
    return f"{mnemonic} {re.sub(r'<.*?>', '', operands)}"
