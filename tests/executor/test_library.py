"""Code of stages is brought into the process from memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pipeline

LOAD = """
import sys, tempfile
import numpy as np
# As where no folder for temporary files may be written.
tempfile.tempdir = "/nonexistent"
import pipeline
with pipeline.load(sys.argv[1]) as running:
    (spec,) = running.plan.inputs
    print(sorted(running.submit(np.zeros(spec.shape, spec.dtype)).result(60).shape))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems load code from files only")
def test_loading_writes_no_temporary_file(digits_onnx: Path, tmp_path: Path, root: Path) -> None:
    """A board whose file system is mounted read-only could load no bundle."""
    graph = pipeline.read(digits_onnx)
    pipeline.build(graph, pipeline.plan(graph, stages=2), check=False).save(tmp_path / "digits.bundle")
    process = subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path / "digits.bundle")],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "[1, 10]\n", "")
