"""Stages with sorts run where only TVM's runtime libraries are, whatever else the process does with TVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import pipeline
from tests.support.onnx_models import by_onnxruntime, node, save

SHAPE = (4, 40)
OUTPUTS = ("v", "i")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that sorts, a frame for it and what ONNX Runtime makes of that, and a bundle that does not sort."""
    path = tmp_path_factory.mktemp("sorts")
    nodes = [node("Relu", "x", "r"), node("TopK", "r k", "v i")]
    outputs, types = list(OUTPUTS), {"i": TensorProto.INT64}
    model = save(path / "m.onnx", nodes, {"x": SHAPE}, outputs, {"k": np.array([5])}, dtypes=types)
    other = save(path / "other.onnx", nodes[:1], {"x": SHAPE}, ["r"], {})
    for source, name in ((model, "m.bundle"), (other, "other.bundle")):
        graph = pipeline.read(source)
        pipeline.build(graph, pipeline.plan(graph, stages=1)).save(path / name)
    x = np.random.default_rng(0).standard_normal((1, *SHAPE), np.float32)
    np.save(path / "x.npy", x)
    reference = by_onnxruntime(model, {"x": x[0]})
    np.savez(path / "reference.npz", v=reference["v"], i=reference["i"])
    return path


def run_python(folder: Path, root: Path, *arguments: str, **variables: str) -> str:
    """Run Python in a folder, in a process of its own, and return what it prints."""
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.fspath(root), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout


def test_a_stage_that_sorts_runs_without_the_compiler(folder: Path, root: Path) -> None:
    command = ["-m", "pipeline.cli", "run", "m.bundle", "--source", "x.npy", "--sink", "y.npz", "--json"]
    run_python(folder, root, *command, TVM_USE_RUNTIME_LIB="1")
    with np.load(folder / "y.npz") as results, np.load(folder / "reference.npz") as reference:
        for name in OUTPUTS:
            np.testing.assert_array_equal(results[name].reshape(reference[name].shape), reference[name])


IMPORT = """
from pipeline.tvm.runtime import tvm_ffi
ours = tvm_ffi.get_global_func("tvm.contrib.sort.argsort")
import tvm
print(ours.same_as(tvm.get_global_func("tvm.contrib.sort.argsort")))
"""


def test_the_compiler_can_be_imported_behind_a_stage_that_sorts(root: Path, tmp_path: Path) -> None:
    """It has functions of the same names, and a name that somebody else has taken ends the process."""
    assert run_python(tmp_path, root, "-c", IMPORT) == "True\n"


BEFORE_THE_FIRST_FRAME = """
import importlib.util
import numpy as np
import pipeline
from pipeline.tvm.runtime import tvm_ffi
x, = np.load("x.npy")
with pipeline.load("m.bundle") as running:
    {between}
    results = running.submit(x).result(60)
with np.load("reference.npz") as reference:
    print([np.array_equal(results[name], reference[name]) for name in reference])
"""


@pytest.mark.parametrize(
    "between",
    [
        "pipeline.load('other.bundle').close()",
        "importlib.util.find_spec('tvm')",
        "import tvm",
        # Its code has found it when it was loaded: no frame looks into a table that others may be writing to.
        "tvm_ffi.remove_global_func('tvm.contrib.sort.topk')",
    ],
)
def test_what_others_do_with_tvm_before_the_first_frame_does_not_matter(folder: Path, root: Path, between: str) -> None:
    """All frames failed: the functions were withdrawn whenever anybody looked for TVM."""
    assert run_python(folder, root, "-c", BEFORE_THE_FIRST_FRAME.format(between=between)) == "[True, True]\n"
