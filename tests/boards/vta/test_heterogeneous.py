"""Stages on cores that borrow VTA, simulated, within one frame."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.plan.plan import Plan
from pipeline.executor.bundle import Bundle
from pipeline.split.graph import Graph
from tests.support.relay_programs import HEADER, random

BOARD, DEVICES = "ultra96-simulated", ["cpu", "vta-simulated", "cpu", "vta-simulated"]
CONV = 'padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3], out_dtype="int32"'
PROGRAM = f"""{HEADER}def @main(%x: Tensor[(1, 16, 8, 8), float32], %u: Tensor[(16, 16, 3, 3), int8],
    %w: Tensor[(16, 1, 3, 3), int8], %v: Tensor[(16, 16, 3, 3), int8]) {{
  %0 = qnn.quantize(%x, 0.03125f, 0, out_dtype="int8");
  %1 = qnn.conv2d(%0, %u, 0, 0, 0.03125f, 0.0078125f, {CONV});
  %2 = qnn.requantize(%1, 0.000244140625f, 0, 0.0625f, 0, axis=1, out_dtype="int8");
  %3 = qnn.conv2d(%2, %w, 0, 0, 0.0625f, 0.0078125f, groups=16, {CONV});
  %4 = qnn.requantize(%3, 0.00048828125f, 0, 0.03125f, 0, axis=1, out_dtype="int8");
  %5 = qnn.conv2d(%4, %v, 0, 0, 0.03125f, 0.0078125f, {CONV});
  %6 = qnn.requantize(%5, 0.000244140625f, 0, 0.0625f, 0, axis=1, out_dtype="int8");
  %6
}}
"""
PARAMS = {
    "u": random(16, 16, 3, 3, dtype="int8") // 2,
    "w": random(16, 1, 3, 3, dtype="int8"),
    "v": random(16, 16, 3, 3, seed=1, dtype="int8") // 2,
}
FRAMES = [random(1, 16, 8, 8, seed=seed) for seed in range(6)]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path = tmp_path_factory.mktemp("model") / "net.relay"
    path.write_text(PROGRAM)
    graph = pipeline.read(path, params=PARAMS)
    assert isinstance(graph, Graph)
    return graph


@pytest.fixture(scope="module")
def plan(graph: Graph) -> Plan:
    """CPU, VTA, CPU and VTA in turn inside of one frame, two frames at a time."""
    stages = pipeline.plan(graph, BOARD, cuts=["%0", "%2", "%4"], devices=DEVICES)
    return stages.join("stage0", "stage3", cores=(0, 1), replicas=2)


@pytest.fixture(scope="module")
def bundle(graph: Graph, plan: Plan) -> Bundle:
    return pipeline.build(graph, plan)


@pytest.fixture(scope="module")
def expected(graph: Graph) -> list[np.ndarray]:
    unsplit = pipeline.build(graph, pipeline.plan(graph, "host", stages=1))
    return stream(unsplit)


def stream(bundle: Bundle | Path) -> list[np.ndarray]:
    with pipeline.load(bundle) as running:
        return [np.array(result) for result in running.map([{"x": frame} for frame in FRAMES])]


def test_each_step_is_built_for_its_device_and_compared_with_the_model(plan: Plan, bundle: Bundle) -> None:
    assert [unit.device for unit in plan.units] == DEVICES
    assert len(bundle.codes) == len(DEVICES)
    assert bundle.parity is not None
    assert bundle.parity.largest_error == 0


def test_the_stream_computes_what_the_unsplit_model_does_bit_by_bit(
    bundle: Bundle, expected: list[np.ndarray], tmp_path: Path
) -> None:
    bundle.save(tmp_path / "net.bundle")
    for results in (stream(bundle), stream(tmp_path / "net.bundle")):
        for result, reference in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, reference)


def test_a_saved_bundle_lists_its_steps(bundle: Bundle, plan: Plan, tmp_path: Path) -> None:
    bundle.save(tmp_path / "net.bundle")
    loaded = Bundle.load(tmp_path / "net.bundle")
    assert loaded.plan == bundle.plan
    assert [step.device for step in loaded.plan.stages[0].steps] == DEVICES
    assert len(loaded.codes) == len(plan.units)


def test_the_statistics_name_the_steps(bundle: Bundle) -> None:
    with pipeline.load(bundle) as running:
        list(running.map([{"x": frame} for frame in FRAMES]))
        (stage,) = running.statistics().stages
    assert [step.device for step in stage.steps] == DEVICES
    assert stage.replicas == 2
