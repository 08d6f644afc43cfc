"""The runtime's wheel for 64-bit Arm runs a bundle on a board that has neither TVM nor this source tree."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np

import pipeline
from tests.executor.arm.conftest import SLOW, ArmPython, board

pytestmark = list(SLOW)

RUN = """
import sys
# Without the packages that the emulated board has, among them all of TVM.
sys.path = [sys.argv[1], *(each for each in sys.path if each and not each.endswith("packages"))]
import soc_stages
sys.argv = ["soc-pipeline", "run", sys.argv[2], "--input", sys.argv[3], "--output", sys.argv[4]]
assert soc_stages.main() == 0
assert "tvm" not in sys.modules
import pipeline
print(pipeline.__file__)
"""


def test_it_runs_alone(arm: ArmPython, root: Path, digits_onnx: Path, tmp_path: Path) -> None:
    builder = runpy.run_path(str(root / "distributions" / "wheels.py"))
    (wheel,) = (each for each in builder["build"](tmp_path / "wheels", ["aarch64"]) if "aarch64" in each.name)
    packages = tmp_path / "installed"
    version = arm.run("cortex-a72", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").stdout.strip()
    platforms = [f"--platform=manylinux_{glibc}_aarch64" for glibc in builder["GLIBC"]]
    options = ["--only-binary=:all:", "--python-version", version, "--implementation", "cp", *platforms]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", *options, "--target", str(packages)]
    subprocess.run([*command, str(wheel)], check=True)

    graph = pipeline.read(digits_onnx)
    frames = np.random.default_rng(1).random((2, 1, 1, 32, 32), np.float32)
    np.save(tmp_path / "frames.npy", frames)
    pipeline.build(graph, pipeline.plan(graph, board=board("cortex-a72"), stages=2)).save(tmp_path / "arm.bundle")
    names = ("arm.bundle", "frames.npy", "results.npz")
    process = arm.run("cortex-a72", "-c", RUN, packages, *(tmp_path / name for name in names))
    assert (process.returncode, process.stderr) == (0, "")
    assert Path(process.stdout.splitlines()[-1]).is_relative_to(packages)
    with (
        pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=1))) as running,
        np.load(tmp_path / "results.npz") as results,
    ):
        expected = np.stack(list(running.map(frames)))
        np.testing.assert_allclose(next(iter(results.values())), expected, rtol=1e-3, atol=1e-4)
