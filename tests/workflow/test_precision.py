"""One option for the precision of products: what stays float32, and what a build tells of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.cli import main
from pipeline.core.board.board import Device
from pipeline.errors import BuildError
from pipeline.executor import build, kernels
from pipeline.executor.kernels import microarchitecture
from tests.support.onnx_models import node, save, weights

pytestmark = pytest.mark.thorough

NARROW = microarchitecture.of_target(kernels.target_for(build.target_of(Device("cpu")))).narrow_formats
needs_narrow = pytest.mark.skipif(not NARROW, reason="this processor multiplies no numbers of 16 bits")
LAYERS = 6


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A chain of convolutions, each of 32 channels."""
    nodes = [node("Conv", f"t{i} w{i}", f"t{i + 1}", pads=[1] * 4) for i in range(LAYERS)]
    values = {f"w{i}": weights(32, 32, 3, 3, seed=i) / np.float32(17) for i in range(LAYERS)}
    return save(tmp_path / "model.onnx", nodes, {"t0": (1, 32, 12, 12)}, [f"t{LAYERS}"], values)


@needs_narrow
def test_the_first_and_the_last_layer_stay_in_float32(model: Path, tmp_path: Path) -> None:
    graph = pipeline.read(model)
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=2), precision="auto", tolerance=0.05)
    assert [stage.options.float32_layers for stage in bundle.plan.stages] == [("t1", f"t{LAYERS}")] * 2
    assert 1e-5 < bundle.parity.relative < 0.05
    bundle.save(tmp_path / "model.bundle")
    assert pipeline.Bundle.load(tmp_path / "model.bundle").plan == bundle.plan


@needs_narrow
def test_layers_go_back_to_float32_until_the_tolerance_is_met(model: Path) -> None:
    graph = pipeline.read(model)
    plan = pipeline.plan(graph, stages=1)
    narrow = pipeline.build(graph, plan, precision="auto", tolerance=0.05)
    closer = pipeline.build(graph, plan, precision="auto", tolerance=narrow.parity.relative * 0.8)
    exact = pipeline.build(graph, plan, precision="auto", tolerance=1e-5)
    counts = [len(bundle.plan.stages[0].options.float32_layers or ()) for bundle in (narrow, closer, exact)]
    assert counts == [2, 4, LAYERS]
    # Sums are those of float32 at last.
    assert exact.parity.relative < 1e-5
    # A second build of the plan has nothing left to find out.
    assert pipeline.build(graph, closer.plan, precision="auto", tolerance=0.05).plan == closer.plan
    # What float32 does not reach is still refused.
    with pytest.raises(BuildError, match="allowed is 1e-12"):
        pipeline.build(graph, plan, precision="auto", tolerance=1e-12)


def test_a_build_says_what_winograds_transforms_compute(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["build", str(model), "--stages", "1", "-o", str(tmp_path / "model.bundle")]
    assert main(words) == 0
    assert f"By Winograd's transforms: {LAYERS} convolutions, rounding errors up to " in capsys.readouterr().out
    assert main([*words, "--precision", "float32-exact"]) == 0
    assert "Winograd" not in capsys.readouterr().out
