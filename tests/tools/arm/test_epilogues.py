"""Epilogues in a disassembly: what a tile's loop does beside the products."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import pipeline
from pipeline.split import extract
from tests.support.quantized_models import convolution
from tests.tools.arm.test_loops import NESTED
from tools.arm import analyser
from tools.arm.epilogues import epilogue, read_functions
from tools.arm.kernels import estimate
from tools.arm.loops import innermost_loops
from tools.arm.networks import compile_network

TILES = """
0000000000000100 <kernel_compute_>:
     100:      	mov	w8, #0x10
     104:      	movi	v0.2d, #0000000000000000
     108:      	movi	v4.2d, #0000000000000000
     10c:      	ldr	q1, [x1], #0x10
     110:      	fmla	v4.4s, v1.4s, v2.s[0]
     114:      	b.ne	0x10c <kernel_compute_+0xc>
     118:      	add	x3, x3, #0x10
     11c:      	cbnz	x8, 0x108 <kernel_compute_+0x8>
     120:      	fadd	v4.4s, v4.4s, v5.4s
     124:      	str	q4, [x2], #0x10
     128:      	b.ne	0x104 <kernel_compute_+0x4>
     12c:      	ret
"""


def test_it_is_the_smallest_loop_that_stores_without_the_loops_inside() -> None:
    (loop,) = innermost_loops(TILES.splitlines())
    code = epilogue(read_functions(TILES.splitlines())["kernel_compute_"], loop)
    assert code is not None
    assert [each.mnemonic for each in code.instructions] == ["movi", "fadd", "str", "b.ne"]


def test_there_is_none_without_a_store_but_to_the_stack() -> None:
    (loop,) = innermost_loops(NESTED.splitlines())
    assert epilogue(read_functions(NESTED.splitlines())["kernel_compute_"], loop) is None


def test_bytes_have_one(tmp_path: Path) -> None:
    """Each sum is scaled, rounded and cut to what a byte holds."""
    try:
        analyser.tool("llvm-mca")
        analyser.tool("llvm-objdump")
    except analyser.Unavailable as error:
        pytest.skip(f"this system: {error}")
    product = convolution(random.Random("convolution1"))
    module = extract.module(extract.parts(pipeline.read(product.save(tmp_path / "m.onnx")), [])[0])
    target = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}
    uses, _ = estimate(compile_network(module, target, tmp_path / "m.o"), "cortex-a72")
    assert sum(use.epilogue_cycles for use in uses) > 0
