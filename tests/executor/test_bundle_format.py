"""The format of bundles is kept, specified, and a function of its inputs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

import pipeline
from pipeline.executor import host_target
from pipeline.executor.manifest import BuildFiles, Manifest, StageFiles
from pipeline.executor.parameters import ParameterEntry
from pipeline.executor.verified_file import BundleFile
from tests.support.onnx_models import node, save, weights

OUTPUT = [3.90742826461792, -7.750429153442383, -1.1668775081634521, -7.7439141273498535, 0.27418822050094604]
"""Of the kept bundles, for `kept_input`, when they were written."""


def kept_input() -> np.ndarray:
    return np.linspace(-1, 1, 144, dtype=np.float32).reshape(1, 4, 6, 6)


@pytest.fixture
def kept(root: Path) -> Path:
    """A bundle for this machine that was written when the format was new."""
    path = root / "tests/executor/bundles" / f"format-1-{host_target.machine()}"
    if not path.exists():
        pytest.skip(f"none was kept for {host_target.machine()}")
    return path


def test_bundles_of_the_first_release_are_run(kept: Path) -> None:
    with pipeline.load(kept) as running:
        np.testing.assert_allclose(running.submit(kept_input()).result()[0], OUTPUT, rtol=1e-5)


@pytest.mark.parametrize("type_", [Manifest, StageFiles, BuildFiles, BundleFile, ParameterEntry])
def test_each_key_is_specified(root: Path, type_: type[msgspec.Struct]) -> None:
    text = (root / "docs/bundle.md").read_text(encoding="utf-8")
    assert [name for name in type_.__struct_fields__ if f"`{name}`" not in text] == []


BUILD = """
import sys
import pipeline
graph = pipeline.read(sys.argv[1])
pipeline.build(graph, pipeline.plan(graph, cuts=["r"]), check=False).save(sys.argv[2])
"""


def test_equal_inputs_make_equal_bytes(tmp_path: Path, root: Path) -> None:
    """In other processes and folders, with other orders of sets."""
    model = tmp_path / "model.onnx"
    nodes = [node("Conv", "x w", "c", pads=[1] * 4), node("Relu", "c", "r"), node("Softmax", "r", "y", axis=1)]
    save(model, nodes, {"x": (1, 4, 6, 6)}, ["y"], {"w": weights(4, 4, 3, 3)})
    contents = []
    for number in range(2):
        folder = tmp_path / f"folder{number}"
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": str(number), "PYTHONPATH": str(root)}
        command = [sys.executable, "-c", BUILD, str(model), str(folder / f"{number}.bundle")]
        subprocess.run(command, cwd=folder, env=environment, check=True, timeout=100, capture_output=True)
        contents.append({path.name: path.read_bytes() for path in (folder / f"{number}.bundle").iterdir()})
    first, second = contents
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
