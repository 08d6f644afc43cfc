"""Products of float16, whose sums of few terms are added up in float32."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tvm.target import Target

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.numerics import Numerics
from pipeline.core.plan.stage_options import StageOptions
from pipeline.errors import BuildError, PlanError
from pipeline.executor.kernels.tiles.half_products import BLOCK
from pipeline.split import extract
from pipeline.split.extract import GraphPart
from tests.executor.kernels.test_targets import assembly, innermost
from tests.support.onnx_models import by_onnxruntime, node, save, weights
from tests.support.random_networks import by_cores, eager_microarchitecture

pytestmark = pytest.mark.thorough

ARM = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
HALVES = Numerics("float16")
ERROR = 4e-3
"""Of one layer, as a share of its largest value; twice of what was seen."""

LAYERS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "pointwise": ("Conv", (2, 72, 7, 5), (20, 72, 1, 1), {}),
    "square": ("Conv", (1, 32, 9, 11), (24, 32, 3, 3), {"pads": [1] * 4}),
    "strided": ("Conv", (1, 16, 9, 11), (24, 16, 3, 3), {"strides": [2, 2]}),
    "first": ("Conv", (1, 3, 23, 19), (18, 3, 7, 7), {"pads": [3] * 4, "strides": [2, 2]}),
    "odd": ("Conv", (1, 37, 6, 6), (9, 37, 3, 3), {"pads": [1] * 4}),
    "grouped": ("Conv", (1, 24, 10, 6), (16, 12, 3, 3), {"group": 2, "pads": [1] * 4}),
    "dilated": ("Conv", (1, 6, 14, 14), (8, 6, 3, 3), {"dilations": [2, 2]}),
    "depthwise": ("Conv", (1, 13, 9, 9), (13, 1, 3, 3), {"group": 13, "pads": [1] * 4}),
    "transposed": ("ConvTranspose", (1, 16, 5, 5), (16, 8, 4, 4), {"strides": [2, 2]}),
    "dense": ("MatMul", (5, 130), (130, 33), {}),
    "batched": ("MatMul", (3, 10, 37), (3, 37, 21), {}),
}
"""Name -> operator, shapes of data and weights, and attributes."""


def part_of(name: str, folder: Path) -> tuple[Path, GraphPart]:
    kind, data, shape, attributes = LAYERS[name]
    file = save(
        folder / "model.onnx", [node(kind, "x w", "y", **attributes)], {"x": data}, ["y"], {"w": weights(*shape)}
    )
    return file, extract.parts(pipeline.read(file), [])[0]


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.one_in(2)
def test_results_are_near_those_of_float32(name: str, in_order: bool, tmp_path: Path) -> None:
    file, part = part_of(name, tmp_path)
    values = {"x": np.random.default_rng(0).standard_normal(LAYERS[name][1]).astype(np.float32)}
    cpu = eager_microarchitecture(lanes=4, registers=32, lane_products=True, multiplies_halves=True, in_order=in_order)
    result = by_cores(part, values, 2, cpu, HALVES)
    expected = by_onnxruntime(file, values)["y"]
    error = np.abs(result - expected).max() / np.abs(expected).max()
    # As exact as float32 would be no float16. Only Winograd's products are float32 beside others of float16.
    by_winograd = in_order and name == "odd"
    assert error < 1e-5 if by_winograd else 1e-5 < error < ERROR


def test_sums_are_stored_as_bytes_by_sixteen(tmp_path: Path) -> None:
    """Several vectors of sums, joined for one store, are float32."""
    nodes = [node("Conv", "x w", "t"), node("QuantizeLinear", "t scale zero", "y")]
    constants = {"w": weights(32, 24, 1, 1), "scale": np.array(0.1, np.float32), "zero": np.array(128, np.uint8)}
    file = save(tmp_path / "model.onnx", nodes, {"x": (1, 24, 6, 6)}, ["y"], constants, dtypes={"y": TensorProto.UINT8})
    values = {"x": np.random.default_rng(0).standard_normal((1, 24, 6, 6)).astype(np.float32)}
    cpu = eager_microarchitecture(lanes=4, registers=32, lane_products=True, multiplies_halves=True)
    result = by_cores(extract.parts(pipeline.read(file), [])[0], values, 1, cpu, HALVES)
    expected = by_onnxruntime(file, values)["y"]
    assert np.abs(result.astype(int) - expected.astype(int)).max() <= 1


def test_sums_are_longer_than_float16_can_count(tmp_path: Path) -> None:
    """Ones, added up one by one in float16, never exceed 2,048."""
    terms = 3 * 2048 + BLOCK // 2
    constants = {"w": np.ones((terms, 9), np.float32)}
    file = save(tmp_path / "model.onnx", [node("MatMul", "x w", "y")], {"x": (4, terms)}, ["y"], constants)
    cpu = eager_microarchitecture(lanes=4, registers=32, lane_products=True, multiplies_halves=True)
    part = extract.parts(pipeline.read(file), [])[0]
    result = by_cores(part, {"x": np.ones((4, terms), np.float32)}, 1, cpu, HALVES)
    np.testing.assert_array_equal(result, np.full((4, 9), terms))


@pytest.mark.parametrize("core", ["cortex-a55", "neoverse-n1", "cortex-a76"])
@pytest.mark.parametrize("name", ["pointwise", "square"])
def test_arm_multiplies_eight_halves_by_each_lane(core: str, name: str, tmp_path: Path) -> None:
    stage = extract.module(part_of(name, tmp_path)[1])
    lines = innermost(assembly(stage, Target({**ARM, "mcpu": core}), numerics=HALVES))
    products = re.findall(r"\sfmla\tv\d+\.8h, v\d+\.8h, v\d+\.h\[(\d)\]", "\n".join(lines))
    assert set(products) == set("01234567")
    assert not [line for line in lines if re.search(r"\sfmla\tv\d+\.4s|\s(ld|st)[rp]\tq.*\[sp", line)]


@pytest.mark.parametrize("target", [{**ARM, "mcpu": "cortex-a72"}, {"kind": "llvm", "mcpu": "x86-64"}])
def test_processors_without_it_are_refused(target: dict[str, object], tmp_path: Path) -> None:
    graph = pipeline.read(part_of("square", tmp_path)[0])
    plan = pipeline.plan(graph, Board("board", (Device("cpu", cores=(0,), target=target),)), stages=1)
    with pytest.raises(BuildError, match=rf"stage 'stage0': precision is float16, which {target['mcpu']} does not"):
        pipeline.build(graph, plan, check=False, precision="float16")
    # A stage may be left out of it.
    exempt = plan.with_options("stage0", precision="float32")
    assert pipeline.build(graph, exempt, check=False, precision="float16").numerics == HALVES


def test_what_it_cannot_be_is_refused() -> None:
    assert HALVES.weights_of("y") == "float16"
    with pytest.raises(BuildError, match="precision is 'int4'; it must be one of float32, float32-exact, bfloat16"):
        Numerics("int4")
    with pytest.raises(BuildError, match="leave one of them out"):
        Numerics("float16", weights="bfloat16")
    with pytest.raises(PlanError, match=r"precision is .float.*did you mean"):
        StageOptions("float")
