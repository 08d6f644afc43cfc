"""Quantised models are judged in steps where other runtimes round otherwise, and by what they stand for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

import pipeline
from pipeline.comparison.judgement import Bounds, Tolerance
from pipeline.comparison.random_frame import random_frame
from pipeline.core.board.board import Board, Device
from pipeline.frontends import references
from pipeline.workflow.reference_check import ReferenceCheck
from tests.support.onnx_models import Arrays, node, save, weights

BOARD = Board("b", (Device("cpu", cores=(0,), runtimes=("tvm", "litert", "onnxruntime")),))

# A product's unit divides 60 of its bytes' units, so that one result in a hundred lies halfway between two.
CONSTANTS: Arrays = {
    "s": np.array(0.05, np.float32), "t": np.array(0.15, np.float32), "z": np.array(7, np.uint8),
    "c": np.random.default_rng(0).integers(0, 256, (1, 8, 32, 32)).astype(np.uint8),
}  # fmt: skip
NODES = [
    node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "a"),
    node("DequantizeLinear", "c s z", "b"), node("Mul", "a b", "p"),
    node("QuantizeLinear", "p t z", "r"), node("DequantizeLinear", "r t z", "y"),
]  # fmt: skip


@pytest.fixture
def halves(tmp_path: Path) -> Path:
    return save(tmp_path / "halves.onnx", NODES, {"x": (1, 8, 32, 32)}, ["y"], CONSTANTS)


@pytest.fixture(scope="module")
def tflite_cases(root: Path) -> Iterator[Any]:
    pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    sys.path.insert(0, str(root / "bench"))
    yield importlib.import_module("tflite_cases")
    sys.path.remove(str(root / "bench"))


def test_stages_of_onnxruntime_may_round_halves_otherwise(halves: Path) -> None:
    graph = pipeline.read(halves)
    parity = pipeline.build(graph, pipeline.plan(graph, BOARD, devices=["cpu/onnxruntime"])).parity
    assert parity.relative <= parity.tolerance


@pytest.mark.parametrize(("kind", "dtype", "seed"), [("MUL", "int8", 3), ("CONV_2D", "int8", 2), ("MEAN", "uint8", 2)])
def test_stages_of_litert_may_round_otherwise(
    kind: str, dtype: str, seed: int, tflite_cases: Any, tmp_path: Path
) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(tflite_cases.make_case(kind, dtype, seed=seed).content)
    graph = pipeline.read(path)
    parity = pipeline.build(graph, pipeline.plan(graph, BOARD, devices=["cpu/litert"])).parity
    assert parity.relative <= parity.tolerance


@pytest.mark.parametrize(("steps", "tolerance", "is_wrong"), [(1, None, False), (9, None, True), (9, "9steps", False)])
def test_stages_may_be_steps_away_as_a_user_allows(
    steps: int, tolerance: str | None, is_wrong: bool, halves: Path
) -> None:
    graph = pipeline.read(halves)
    frame = random_frame(graph.inputs, 0)
    _, (expected,) = references.run(halves, frame)
    outputs = {**frame, "y": expected.copy()}
    outputs["y"].flat[5] += np.float32(steps * 0.15)
    bounds = Bounds.of(Tolerance.of(tolerance))
    check = ReferenceCheck(graph, bounds).check_stages(outputs, {"y": expected})
    assert bool(check.problems) == is_wrong


def test_a_result_nearer_to_real_numbers_than_the_library_is_accepted(tmp_path: Path) -> None:
    nodes, arrays = deep_network(6)
    path = save(tmp_path / "deep.onnx", nodes, {"x": (1, 8, 12, 12)}, ["y"], arrays)
    graph = pipeline.read(path)
    frame = {"x": weights(1, 8, 12, 12)}
    (_, (expected,)), real = references.run(path, frame), references.run_real(path, frame)
    assert real is not None
    # Coarse steps: rounding of six layers is several of them.
    assert np.abs(expected - real[0]).max() > 2.5 * arrays["s"]
    nearer, farther = real[0], 2 * expected - real[0]
    reference = ReferenceCheck.of(graph, Tolerance())
    assert not reference.check_frame(frame, {"y": nearer}).problems
    assert reference.check_frame(frame, {"y": expected + 3 * (farther - expected)}).problems


def deep_network(depth: int) -> tuple[list[Any], Arrays]:
    """Return convolutions whose coarse steps add up."""
    arrays: Arrays = {"s": np.array(0.25, np.float32), "z": np.array(128, np.uint8)}
    nodes, last = [], "x"
    for number in range(depth):
        arrays[f"w{number}"] = weights(8, 8, 3, 3, seed=number) / 8
        nodes += [
            node("QuantizeLinear", f"{last} s z", f"q{number}"),
            node("DequantizeLinear", f"q{number} s z", f"d{number}"),
            node("Conv", f"d{number} w{number}", "y" if number == depth - 1 else f"c{number}", pads=[1] * 4),
        ]  # fmt: skip
        last = f"c{number}"
    return nodes, arrays
