"""Instructions that the compiler makes of the kernels: whole vectors, fused multiply-adds, no detours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tvm import tirx
from tvm.target import Target

import pipeline
from pipeline.core.numerics import EXACT, Numerics
from pipeline.executor import host_target, kernels
from pipeline.executor.kernels import microarchitecture
from pipeline.split import extract
from pipeline.tvm.access import compiler_lock, tvm
from tests.support.onnx_models import node, save, weights

BOARDS = {
    "cortex-a53": {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a53", "mattr": ["+neon"]},
    "cortex-a72": {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72", "mattr": ["+neon"]},
    "haswell": {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "haswell"},
    "skylake-avx512": {"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "skylake-avx512"},
}
MULTIPLY_ADD = {
    "cortex-a53": r"fmla\s+v\d+\.4s",
    "cortex-a72": r"fmla\s+v\d+\.4s",
    "haswell": r"vfmadd\d+ps.*%ymm",
    "skylake-avx512": r"vfmadd\d+ps.*%zmm",
}


def assembly(module: Any, target: Any, numerics: Numerics = EXACT) -> str:
    """Return the code of the stage's convolution."""
    with compiler_lock:
        target = kernels.target_for(target)
        stage = kernels.optimise(module, target, numerics=numerics)
        kernel = next(
            function
            for name, function in stage.functions.items()
            if isinstance(function, tirx.PrimFunc) and re.search("convolution|depthwise", str(name.name_hint))
        )
        executable = tvm.compile(tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")}), target).mod
        return max(
            (str(part.inspect_source("s")) for part in (executable, *executable.imports) if part.kind == "llvm"),
            key=len,
        )


def innermost(text: str) -> list[str]:
    """Return the lines from a label to the last of the multiply-adds behind it, where there are most."""
    pieces = re.split(r"^\.LBB.*$", text, flags=re.MULTILINE)
    largest = max(pieces, key=lambda piece: len(re.findall(r"fmla|vfmadd", piece)))
    return re.sub(r"(?s)(.*(?:fmla|vfmadd)[^\n]*).*", r"\1", largest).splitlines()


@pytest.mark.parametrize("board", BOARDS)
def test_inner_loop_multiplies_and_adds_in_registers(board: str, tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Relu", "c", "y")]
    path = save(tmp_path / "model.onnx", nodes, {"x": (1, 64, 28, 28)}, ["y"], {"w": weights(64, 64, 3, 3)})
    module = extract.module(extract.parts(pipeline.read(path), [])[0])
    lines = innermost(assembly(module, Target(BOARDS[board])))
    multiply_adds = [line for line in lines if re.search(MULTIPLY_ADD[board], line)]
    assert len(multiply_adds) >= 24
    stores = [line for line in lines if re.search(r"\bst[rp]\s|vmovu?aps\s+%[yz]mm\d+, .*\(", line)]
    assert len(stores) < len(multiply_adds) / 10


@pytest.mark.parametrize(
    ("board", "lanes", "registers"),
    [("cortex-a53", 4, 32), ("haswell", 8, 16), ("skylake-avx512", 16, 32)],
)
def test_machine_is_read_from_the_target(board: str, lanes: int, registers: int) -> None:
    cpu = microarchitecture.of_target(kernels.target_for(Target(BOARDS[board])))
    assert (cpu.lanes, cpu.registers) == (lanes, registers)
    assert 0 < cpu.l1_bytes < cpu.l2_bytes


def test_pairs_of_vectors_are_loaded_one_by_one_where_a_pair_holds_up_what_follows() -> None:
    arm = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
    in_order, other = (kernels.target_for(Target({**arm, "mcpu": name})) for name in ("cortex-a55", "cortex-a76"))
    assert microarchitecture.of_target(in_order).in_order
    assert not microarchitecture.of_target(other).in_order
    assert "+slow-paired-128" in list(in_order.attrs["mattr"])
    assert "+slow-paired-128" not in list(other.attrs.get("mattr", ()))


def test_a_core_that_llvm_knows_badly_is_scheduled_as_its_twin() -> None:
    arm = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76", "mattr": ["+dotprod"]}
    target = kernels.target_for(Target(arm))
    assert str(target.attrs["mcpu"]) == "neoverse-n1"
    assert "+dotprod" in map(str, target.attrs["mattr"])
    assert host_target.needs(target) == host_target.needs(Target(arm)), "nothing that the core lacks may be used"
    # All of these are the same for kernels.
    assert microarchitecture.of_target(target) == microarchitecture.of_target(Target(arm))
    assert kernels.target_for(target) == target
