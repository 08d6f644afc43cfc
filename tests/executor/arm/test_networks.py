"""Nine well-known networks on Arm: answers as those of ONNX Runtime's own wheel for that processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest

import pipeline
from tests.executor.arm.conftest import ArmPython, board

LIMIT = 3500.0
"""Seconds for one network: an emulated core multiplies and adds a hundred million times a second, VGG 20 billion."""

RUN = """
import sys
from pathlib import Path
import numpy as np
import onnxruntime
import pipeline
folder = Path(sys.argv[1])
frame = np.load(folder / "frame.npy")
with pipeline.load(folder / "arm.bundle") as running:
    (result,) = running.map([frame])
session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
(expected,) = session.run(None, {session.get_inputs()[0].name: frame})
np.savez(folder / "answers.npz", result=result, expected=expected)
"""


@pytest.mark.slow
@pytest.mark.timeout(LIMIT + 300)
@pytest.mark.parametrize(
    "processor", ["cortex-a53", "cortex-a55", "cortex-a72", "cortex-a76", "neoverse-n1", "neoverse-v1"]
)
@pytest.mark.parametrize("network", models.NAMES)
def test_a_network_answers_as_onnx_runtime_there(arm: ArmPython, processor: str, network: str, tmp_path: Path) -> None:
    assert error_there(arm, processor, network, tmp_path) < 1e-4


@pytest.mark.slow
@pytest.mark.timeout(LIMIT + 300)
@pytest.mark.parametrize("processor", ["cortex-a55", "cortex-a76", "neoverse-n1"])
def test_a_network_in_float16_answers_nearly_so(arm: ArmPython, processor: str, tmp_path: Path) -> None:
    # Half of what a build allows; 6e-4 was seen.
    assert 1e-5 < error_there(arm, processor, "squeezenet", tmp_path, precision="float16") < 1e-2


def error_there(arm: ArmPython, processor: str, network: str, folder: Path, **options: Any) -> float:
    """Return the largest difference between both answers there, as a share of the largest value."""
    if arm.run(processor, "-c", "import onnxruntime").returncode:
        pytest.skip("the board has no ONNX Runtime")
    file = models.write(network, folder).rename(folder / "model.onnx")
    graph = pipeline.read(file)
    np.save(folder / "frame.npy", np.random.default_rng(1).standard_normal(graph.inputs[0].shape, np.float32))
    # By two stages, as bundles usually have several; the check here would be one of this machine's kernels.
    plan = pipeline.plan(graph, board(processor), stages=2)
    pipeline.build(graph, plan, check=False, **options).save(folder / "arm.bundle")
    process = arm.run(processor, "-c", RUN, folder, limit=LIMIT)
    assert process.returncode == 0, process.stderr
    with np.load(folder / "answers.npz") as answers:
        result, expected = answers["result"], answers["expected"]
    assert result.shape == expected.shape
    return float(np.abs(result - expected).max() / np.abs(expected).max())
