"""Estimates of a whole network: each product is in one of the loops that are found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import arm
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pipeline
from pipeline.core.numerics import Numerics
from pipeline.split import extract
from tools.arm import analyser, networks
from tools.arm.kernels import LoopNode, estimate, loop_tree, match
from tools.arm.loops import Instruction, Loop
from tools.arm.wheels import dense_loops


def product_loop(vectors: int, others: int = 0) -> Loop:
    """Return a loop of so many vector products and other instructions."""
    products = [Instruction(0, "fmla", "v0.4s, v1.4s, v2.4s")] * vectors
    return Loop("f", (*products, *[Instruction(0, "nop", "")] * others))


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    """Two convolutions, the second one depthwise, and a product with a matrix."""
    weights = {"w1": (24, 16, 3, 3), "w2": (24, 1, 3, 3), "w3": (9600, 12)}
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["a", "w2"], ["b"], pads=[1] * 4, group=24),
        helper.make_node("Flatten", ["b"], ["d"]),
        helper.make_node("MatMul", ["d", "w3"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 20, 20])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 12])],
        [
            numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
            for name, shape in weights.items()
        ],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "small.onnx"
    )
    return extract.module(extract.parts(pipeline.read(tmp_path / "small.onnx"), [])[0])


@pytest.mark.parametrize("core", ["neoverse-n1", "cortex-a53"])
def test_every_product_of_a_network_is_in_a_loop(core: str, stage: Any, tmp_path: Path) -> None:
    try:
        analyser.tool("llvm-mca")
        analyser.tool("llvm-objdump")
    except analyser.Unavailable as error:
        pytest.skip(f"this system: {error}")
    network = networks.compile_network(stage, arm.target_of(core), tmp_path / "small.o")
    uses, coverage = estimate(network, core)
    assert coverage == pytest.approx(1)
    # 20 x 20 pixels of 24 channels, each of 16 x 9 and of 9 products; the matrix has 12 columns.
    assert sum(use.macs for use in uses) == pytest.approx(400 * 24 * (16 * 9 + 9 + 12))
    limit = 8 if core == "neoverse-n1" else 4
    assert all(0 < use.loop.macs / use.turn_cycles <= limit * 1.01 for use in uses)


def test_transforms_take_time_and_are_no_products_of_the_model(stage: Any, tmp_path: Path) -> None:
    try:
        analyser.tool("llvm-mca")
        analyser.tool("llvm-objdump")
    except analyser.Unavailable as error:
        pytest.skip(f"this system: {error}")
    network = networks.compile_network(stage, arm.target_of("cortex-a72"), tmp_path / "small.o", Numerics())
    uses, coverage = estimate(network, "cortex-a72")
    assert coverage == pytest.approx(1)
    assert sum(use.macs for use in uses) == pytest.approx(400 * 24 * (16 * 9 + 9 + 12))
    transforms = [use for use in uses if "winograd" in use.function and not use.macs]
    # There and back of 5 x 5 tiles: four vectors of 16 channels there, six of 24 back.
    assert sum(use.turns for use in transforms if use.loop.macs == 480) == 25 * 4
    assert sum(use.turns for use in transforms if use.loop.macs == 240) == 25 * 6
    assert all(use.cycles > 0 for use in transforms)


def test_loops_in_tir_count_the_products_of_kernels(stage: Any, tmp_path: Path) -> None:
    network = networks.compile_network(stage, arm.target_of("cortex-a72"), tmp_path / "small.o")
    trees = {name: loop_tree(network.functions[name]) for name in network.operations}
    counted = {name: 2 * tree.turn_macs for name, tree in trees.items() if tree.turn_macs}
    assert counted == {name: network.operations[name] for name in counted}
    assert len(counted) == 3


def matching(node: LoopNode, loops: Sequence[Loop]) -> list[Loop]:
    return match(node, loops, lambda loop: loop)


def test_a_loop_is_matched_by_its_products() -> None:
    outer = LoopNode(10)
    leaf = LoopNode(6, outer, 16)
    outer.children.append(leaf)
    whole, twice, unrolled, other = product_loop(4), product_loop(8), product_loop(24), product_loop(5)
    assert matching(leaf, [other, twice, whole, unrolled]) == [whole]
    assert matching(leaf, [other, twice]) == [twice]
    # Written out as a whole it is a part of the loop around it.
    assert matching(leaf, [other, unrolled]) == [unrolled]
    assert matching(leaf, [other]) == []


def test_of_loops_with_as_many_products_the_one_with_as_many_sums_is_matched() -> None:
    leaf = LoopNode(6, LoopNode(10), 16, 2)
    products = [Instruction(0, "fmla", f"v{number % 2}.4s, v4.4s, v5.4s") for number in range(4)]
    assert matching(leaf, [product_loop(4), Loop("f", tuple(products))]) == [Loop("f", tuple(products))]
    # Twice as many products in these sums are two turns.
    assert matching(leaf, [product_loop(4), Loop("f", tuple(products * 2))]) == [Loop("f", tuple(products * 2))]


def test_main_loops_of_a_library_are_the_dense_ones() -> None:
    dense, nearly, sparse = product_loop(64, 8), product_loop(48, 10), product_loop(64, 64)
    assert dense_loops([sparse, dense, nearly], "float32") == [dense, nearly]
    assert dense_loops([dense], "dot") == []


def test_cores_have_the_products_of_their_extensions() -> None:
    assert arm.kinds_of("cortex-a53") == ["float32", "mlal"]
    assert arm.kinds_of("neoverse-n1") == ["float32", "mlal", "dot", "float16"]
