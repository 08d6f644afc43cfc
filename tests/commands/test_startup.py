"""What runs a bundle imports nothing heavy: that is most of the time to its first result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HEAVY = (
    "PIL", "asyncio", "av", "matplotlib", "onnx", "onnxruntime", "packaging", "psutil", "rich", "ssl", "tornado",
    "torch", "tvm", "pipeline.tvm.access", "pipeline.executor.build", "pipeline.executor.kernels",
    "pipeline.measure", "pipeline.quantization", "pipeline.simulation", "pipeline.split", "pipeline.workflow.read",
    "pipeline.commands.build", "pipeline.commands.plan", "pipeline.doctor",
)  # fmt: skip

LOAD = """
import numpy as np
import pipeline
frame = np.load("frames.npy")[0]
with pipeline.load({bundle!r}) as running:
    assert running.submit(frame).result(60).shape == (1, 10)
"""
RUN = """
from pipeline.cli import main
assert main(["run", {bundle!r}, "--input", "frames.npy", "--output", "results.npz"]) == 0
"""


@pytest.mark.parametrize("code", [LOAD, RUN], ids=["load", "run"])
def test_nothing_heavy_is_imported(code: str, bundle: Path, root: Path, tmp_path: Path) -> None:
    assert_light(code.format(bundle=str(bundle)), root, tmp_path)


def test_a_model_s_second_start_is_that_of_a_bundle(
    digits_onnx: Path, root: Path, tmp_path: Path, command: Any
) -> None:
    np.save(tmp_path / "first.npy", np.zeros((1, 1, 32, 32), np.float32))
    assert command("run", digits_onnx, "--input", tmp_path / "first.npy").status == 0
    assert_light(RUN.format(bundle=str(digits_onnx)), root, tmp_path)


def assert_light(code: str, root: Path, tmp_path: Path) -> None:
    """Run the code in a process of its own, which imports nothing heavy."""
    np.save(tmp_path / "frames.npy", np.zeros((1, 1, 1, 32, 32), np.float32))
    code = f"{code}\nimport sys\nprint(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        # What a user has not set: nothing tells TVM which library to use.
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": os.fspath(root),
            "SOC_PIPELINE_CACHE": os.environ["SOC_PIPELINE_CACHE"],
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.splitlines()[-1] == ""


def test_the_compiler_comes_when_it_is_needed(bundle: Path, digits_onnx: Path, root: Path, tmp_path: Path) -> None:
    """One process may run and load a bundle first, by TVM's FFI alone, and build another one later."""
    np.save(tmp_path / "frames.npy", np.zeros((1, 1, 1, 32, 32), np.float32))
    code = f"""{RUN.format(bundle=str(bundle))}
{LOAD.format(bundle=str(bundle))}
    graph = pipeline.read({str(digits_onnx)!r})
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=1), verify=None)) as other:
        expected = other.submit(frame).result(60)
        # Of the stages that were there before TVM was.
        np.testing.assert_allclose(running.submit(frame).result(60), expected, rtol=1e-4, atol=1e-5)
"""
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.fspath(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (process.returncode, process.stderr) == (0, "")
