"""Loops of a disassembly: which are innermost, and what is counted in them."""

from __future__ import annotations

import pytest

from tools.arm.loops import Loop, branch_target, innermost_loops, parse

NESTED = """
lib0.o:	file format elf64-littleaarch64

0000000000000100 <kernel_compute_>:
     100:      	mov	w8, #0x10               // =16
     104:      	movi	v0.2d, #0000000000000000
     108:      	ldr	q1, [x1], #0x10
     10c:      	ldp	q2, q3, [x0], #0x20
     110:      	str	q0, [sp, #0x20]
     114:      	fmla	v4.4s, v1.4s, v2.s[0]
     118:      	fmla	v5.4s, v1.4s, v3.s[1]
     11c:      	mov	w9, #0x70               // =112
     120:      	subs	x8, x8, #0x1
     124:      	b.ne	0x108 <kernel_compute_+0x8>
     128:      	fmla	v6.4s, v1.4s, v2.s[0]
     12c:      	cbnz	x9, 0x104 <kernel_compute_+0x4>
     130:      	ret
"""

X86 = """
0000000000000000 <kernel_compute_>:
      10:      	vmovups	(%rsi), %ymm1
      14:      	vbroadcastss	0x4(%rdi), %ymm2
      1a:      	vfmadd231ps	%ymm1, %ymm2, %ymm3 # ymm3 = (ymm2 * ymm1) + ymm3
      1f:      	vfmadd231ps	0x20(%rsp), %ymm2, %ymm4 # ymm4 = (ymm2 * mem) + ymm4
      25:      	vmovups	%ymm4, (%rdx)
      28:      	leaq	0x8(%rdi), %rdi
      2c:      	jne	0x10 <kernel_compute_+0x10>
"""


def loops(text: str) -> list[Loop]:
    return list(innermost_loops(text.splitlines()))


def test_only_the_inner_one_of_two_nested_loops_is_innermost() -> None:
    (loop,) = loops(NESTED)
    assert loop.function == "kernel_compute_"
    assert (loop.instructions[0].address, loop.instructions[-1].address) == (0x108, 0x124)


def test_products_loads_and_the_stack_are_counted() -> None:
    (loop,) = loops(NESTED)
    assert (loop.macs, loop.kind, loop.multipliers) == (8, "float32", 2)
    assert (loop.loads, loop.spills) == (2, 1)


def test_loops_of_x86_are_counted_alike() -> None:
    (loop,) = loops(X86)
    assert (loop.macs, loop.kind, loop.multipliers) == (16, "float32", 2)
    # The product that reads the stack loads too; an address is computed without a load, and a store is none.
    assert (loop.loads, loop.spills) == (3, 1)


def test_two_loops_one_after_the_other_are_both_found() -> None:
    second = NESTED.replace("\n     1", "\n     2").replace("0x10", "0x20").replace("<kernel", "<other")
    assert [loop.instructions[0].address for loop in loops(NESTED + second.replace("00100", "00200"))] == [0x108, 0x208]


def test_a_loop_that_is_left_in_its_middle_is_innermost_though_it_ends_behind_the_one_around() -> None:
    lines = ["fmla\tv0.4s, v1.4s, v2.4s"] * 3 + ["cbz\tx1, 0x10"] + ["fmla\tv3.4s, v1.4s, v2.4s"] * 2 + ["b\t0x18"]
    text = "\n".join(f"  {0x10 + 4 * number:x}:  \t{line}" for number, line in enumerate(lines))
    (loop,) = loops(f"<f>:\n{text}\n")
    assert (loop.start, loop.end, loop.multipliers) == (0x18, 0x28, 3)


def test_a_loop_that_calls_is_left_out() -> None:
    assert loops(NESTED.replace("mov	w9, #0x70 ", "bl	0x400")) == []


def test_a_loop_without_products_is_left_out() -> None:
    assert loops(NESTED.replace("fmla", "fadd")) == []


@pytest.mark.parametrize(
    ("instruction", "kind", "count"),
    [
        ("fmla	v0.4s, v1.4s, v2.4s", "float32", 4),
        ("fmla	v0.2s, v1.2s, v2.s[1]", "float32", 2),
        ("fmadd	s0, s1, s2, s3", "float32", 1),
        ("fmla	v0.8h, v1.8h, v2.h[7]", "float16", 8),
        ("sdot	v0.4s, v1.16b, v2.4b[3]", "dot", 16),
        ("udot	v0.2s, v1.8b, v2.8b", "dot", 8),
        ("smlal2	v0.4s, v1.8h, v2.h[0]", "mlal", 4),
        ("smull	v0.8h, v1.8b, v2.8b", "mlal", 8),
        ("usmmla	v0.4s, v1.16b, v2.16b", "mmla", 32),
    ],
)
def test_products_of_an_instruction(instruction: str, kind: str, count: int) -> None:
    (loop,) = loops(f"<f>:\n  10:  \t{instruction}\n  14:  \tb.ne\t0x10\n")
    assert (loop.kind, loop.macs) == (kind, count)


@pytest.mark.parametrize(
    "instruction", ["fmla	v0.2d, v1.2d, v2.2d", "fmadd	d0, d1, d2, d3", "fmul	v0.4s, v1.4s, v2.4s"]
)
def test_what_is_no_product_of_this_table_counts_nothing(instruction: str) -> None:
    assert loops(f"  10:  \t{instruction}\n  14:  \tb.ne\t0x10\n") == []


def test_remarks_are_no_operands() -> None:
    arm, x86 = parse("  100:  \tmov\tw8, #0x10  // =16"), parse("  1a:  \tvaddps\t%ymm1, %ymm2, %ymm3 # a sum")
    assert arm is not None
    assert x86 is not None
    assert (arm.operands, x86.operands) == ("w8, #0x10", "%ymm1, %ymm2, %ymm3")


@pytest.mark.parametrize(
    ("line", "target"),
    [("10: \ttbnz\tw3, #0x4, 0x80 <f+0x80>", 0x80), ("10: \tjb\t0x20 <f>", 0x20), ("10: \tblr\tx8", None),
     ("10: \tbic\tw1, w2, #0x10", None)],
)  # fmt: skip
def test_targets_of_branches(line: str, target: int | None) -> None:
    instruction = parse(line)
    assert instruction is not None
    assert branch_target(instruction) == target


def test_the_text_of_a_loop_leads_back_to_its_begin() -> None:
    (loop,) = loops(NESTED)
    assert loop.assembly().splitlines()[-3:] == ["mov w9, #0x70", "subs x8, x8, #0x1", "b.ne .Lloop"]


def test_sums_are_the_registers_that_are_added_to() -> None:
    dots = ["sdot\tv0.4s, v2.16b, v3.16b", "sdot\tv1.4s, v2.16b, v3.16b", "sdot\tv0.4s, v2.16b, v4.16b"]
    pairs = ["smull\tv5.8h, v2.8b, v3.8b", "smlal2\tv6.8h, v2.16b, v3.16b", "sadalp\tv1.4s, v5.8h"]
    for instructions, sums in ((dots, 2), (pairs, 1)):
        text = "\n".join(
            f"  {0x10 + 4 * number:x}:  \t{line}" for number, line in enumerate([*instructions, "b\t0x10"])
        )
        (loop,) = loops(f"<f>:\n{text}\n")
        assert loop.sums == sums
