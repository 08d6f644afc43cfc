"""Slices of loops: what is done with the sums of a tile is no part of its products."""

from __future__ import annotations

from tools.arm.loops import Loop, innermost_loops
from tools.arm.slices import products_part

TILE = [
    "ldr\tq0, [x1], #16", "movi\tv8.2d, #0000000000000000", "ldp\tq1, q2, [x2]", "eor\tv0.16b, v0.16b, v3.16b",
    "sdot\tv8.4s, v1.16b, v0.4b[0]", "add\tx9, x9, #0x1", "str\tq8, [sp, #0x10]", "scvtf\tv9.4s, v8.4s",
    "ldr\tq5, [x4]", "fmul\tv9.4s, v9.4s, v5.4s", "str\tq9, [x5]", "subs\tx7, x7, #0x1", "b.ne\t0x10",
]  # fmt: skip


def loop(instructions: list[str]) -> Loop:
    lines = "\n".join(f"  {0x10 + 4 * number:x}:  \t{line}" for number, line in enumerate(instructions))
    (result,) = innermost_loops(f"<f>:\n{lines}\n".splitlines())
    return result


def mnemonics(part: Loop) -> list[str]:
    return [instruction.mnemonic for instruction in part.instructions]


def test_an_epilogue_is_left_out_and_spills_are_not() -> None:
    part = products_part(loop(TILE))
    assert mnemonics(part) == ["ldr", "movi", "ldp", "eor", "sdot", "str", "b.ne"]
    assert (part.macs, part.spills) == (16, 1)


def test_a_loop_that_stores_nothing_is_as_it_was() -> None:
    whole = loop([line for line in TILE if not line.startswith("str")])
    assert products_part(whole) == whole
    # Sums on the stack are no results.
    spilling = loop([line for line in TILE if not line.startswith("str\tq9")])
    assert products_part(spilling) == spilling


def test_addresses_that_products_need_stay() -> None:
    lines = [
        "add\tx1, x3, x4",
        "ldr\tq1, [x1]",
        "smull\tv2.8h, v1.8b, v3.8b",
        "sadalp\tv4.4s, v2.8h",
        "xtn\tv5.4h, v4.4s",
    ]
    part = products_part(loop([*lines, "str\td5, [x6]", "b\t0x10"]))
    assert mnemonics(part) == ["add", "ldr", "smull", "sadalp", "b"]
