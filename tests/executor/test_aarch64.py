"""A bundle that is built here for Arm, and run there: on a real one, or on an emulated one."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import models
import numpy as np
import pytest

import pipeline
from pipeline.board import Board, Device
from pipeline.errors import BuildError
from pipeline.executor.link import linker

PYTHON = "AARCH64_PYTHON"
ROOT = Path(__file__).parents[2]

RUN = """
import sys
import numpy as np
import pipeline
bundle, frames, results = sys.argv[1:]
with pipeline.load(bundle) as running:
    np.save(results, np.stack(list(running.map(np.load(frames)))))
"""


@pytest.fixture
def arm() -> list[str]:
    """Return the command that runs a Python on Arm."""
    if not (command := os.environ.get(PYTHON)):
        pytest.skip(f"${PYTHON} names no command that runs a Python on Arm with this package's requirements")
    try:
        linker("aarch64")
    except BuildError as error:
        pytest.skip(str(error))
    return shlex.split(command)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("processor", ["cortex-a53", "cortex-a72"])
@pytest.mark.parametrize("model", ["digits", "squeezenet"])
def test_a_bundle_gives_the_same_there(
    arm: list[str], digits_onnx: Path, tmp_path: Path, processor: str, model: str
) -> None:
    target = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": processor, "mattr": ["+neon"]}
    board = Board("arm", (Device("cpu", cores=(0, 1), target=target),))
    file = digits_onnx if model == "digits" else models.write(model, tmp_path)
    graph = pipeline.read(file)
    frames = np.random.default_rng(0).standard_normal((4, *graph.inputs[0].shape)).astype(np.float32)
    np.save(tmp_path / "frames.npy", frames)
    pipeline.build(graph, pipeline.plan(graph, board, stages=2)).save(tmp_path / "arm.bundle")
    paths = [str(tmp_path / name) for name in ("arm.bundle", "frames.npy", "results.npy")]
    # From the project's folder, so that its package is found.
    subprocess.run([*arm, "-c", RUN, *paths], check=True, cwd=ROOT)
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=1), check=False)) as running:
        expected = np.stack(list(running.map(frames)))
    found = np.load(tmp_path / "results.npy")
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
