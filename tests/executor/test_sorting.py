"""Sorts do what TVM's do, and stages with sorts run where only TVM's runtime library is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from onnx import TensorProto

import pipeline
from pipeline.executor.sorting import FUNCTIONS, PREFIX
from tests.support.onnx_models import by_onnxruntime, node, save

VALUES = np.random.default_rng(0)


def array(dtype: str, *shape: int) -> np.ndarray:
    """Return few different values, so that many are equal."""
    return VALUES.integers(-3, 4, shape).astype(dtype)


def both(name: str, result: np.ndarray, call: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return what TVM's function and ours write into copies of `result`."""
    outputs = []
    for function in (tvm.get_global_func(PREFIX + name), FUNCTIONS[name]):
        tensor = tvm.runtime.tensor(result)
        call(function, tensor)
        outputs.append(tensor.numpy())
    return outputs[0], outputs[1]


@pytest.mark.parametrize("ascends", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "float64"])
def test_sorts_are_stable_along_any_axis(dtype: str, axis: int, ascends: bool) -> None:
    data = tvm.runtime.tensor(array(dtype, 3, 20, 4))
    theirs, ours = both("argsort", np.zeros((3, 20, 4), np.int32), lambda f, result: f(data, result, axis, ascends))
    np.testing.assert_array_equal(ours, theirs)
    theirs, ours = both("sort", data.numpy(), lambda f, result: f(data, result, axis, ascends))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("ascends", [True, False])
@pytest.mark.parametrize(("kind", "dtype"), [("values", "float32"), ("indices", "int64")])
@pytest.mark.parametrize("count", [1, 5, 0])
def test_the_first_few(kind: str, dtype: str, count: int, ascends: bool) -> None:
    data = tvm.runtime.tensor(array("float32", 3, 20))
    result = np.zeros((3, count or 20), dtype)
    theirs, ours = both("topk", result, lambda f, result: f(data, result, count, 1, kind, ascends))
    np.testing.assert_array_equal(ours, theirs)


def test_the_first_few_with_their_indices() -> None:
    data = tvm.runtime.tensor(array("float32", 3, 20))
    values, indices = (tvm.runtime.tensor(np.zeros((3, 4), dtype)) for dtype in ("float32", "int32"))
    FUNCTIONS["topk"](data, values, indices, 4, 1, "both", False)
    np.testing.assert_array_equal(np.take_along_axis(data.numpy(), indices.numpy(), 1), values.numpy())
    assert (values.numpy() == -np.sort(-data.numpy(), 1)[:, :4]).all()


@pytest.mark.parametrize("ascends", [True, False])
def test_the_valid_ones_of_each_row(ascends: bool) -> None:
    data = tvm.runtime.tensor(array("float32", 3, 20))
    counts = tvm.runtime.tensor(np.array([0, 7, 20], np.int32))
    result = np.zeros((3, 20), np.int32)
    theirs, ours = both("argsort_nms", result, lambda f, result: f(data, counts, result, 1, ascends))
    np.testing.assert_array_equal(ours, theirs)


def test_the_compiler_can_be_imported_behind_a_stage_that_sorts(root: Path) -> None:
    """It has functions of the same names, and a name that is taken ends the process."""
    code = """
from pipeline.core.tvm_runtime import tvm_ffi
from pipeline.executor import sorting
sorting.register_missing()
ours = tvm_ffi.get_global_func("tvm.contrib.sort.argsort")
import tvm
print(ours.same_as(tvm.get_global_func("tvm.contrib.sort.argsort")))
sorting.register_missing()
"""
    environment = {**os.environ, "PYTHONPATH": os.fspath(root)}
    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "False\n", "")


def test_a_stage_that_sorts_runs_without_the_compiler(tmp_path: Path, root: Path) -> None:
    nodes = [node("Relu", "x", "r"), node("TopK", "r k", "v i")]
    outputs = ["v", "i"]
    constants = {"k": np.array([5])}
    path = save(tmp_path / "m.onnx", nodes, {"x": (4, 40)}, outputs, constants, dtypes={"i": TensorProto.INT64})
    graph = pipeline.read(path)
    pipeline.build(graph, pipeline.plan(graph, stages=1)).save(tmp_path / "m.bundle")
    x = VALUES.standard_normal((1, 4, 40), np.float32)
    np.save(tmp_path / "x.npy", x)
    environment = {**os.environ, "TVM_USE_RUNTIME_LIB": "1", "PYTHONPATH": os.fspath(root)}
    command = [sys.executable, "-m", "pipeline.cli", "run", "m.bundle", "--source", "x.npy", "--sink", "y.npz"]
    process = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert process.returncode == 0, process.stderr
    reference = by_onnxruntime(path, {"x": x[0]})
    with np.load(tmp_path / "y.npz") as results:
        for name in outputs:
            np.testing.assert_array_equal(results[name].reshape(reference[name].shape), reference[name])
