"""Frames that would end the process inside of ONNX Runtime are refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import pipeline
from tests.support.onnx_models import assert_close, by_onnxruntime, in_stages, node, save

NODES = (
    node("STFT", "x step - length", "s"),
    node("ReduceSum", "s", "sum", keepdims=0),
    node("Reshape", "sum one", "y"),
)


def write(folder: Path, dtype: Any = np.int64) -> Path:
    constants = {"step": np.array(4, dtype), "one": np.array([1])}
    kinds = {"length": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))}
    return save(folder / "m.onnx", NODES, {"x": (1, 16, 1), "length": ()}, ["y"], constants, dtypes=kinds)


def frame(length: int, dtype: Any = np.int64) -> dict[str, np.ndarray]:
    return {"x": np.arange(16, dtype=np.float32).reshape(1, 16, 1), "length": np.array(length, dtype)}


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_a_length_of_a_frame_is_taken(tmp_path: Path, dtype: Any) -> None:
    path = write(tmp_path, dtype=dtype)
    graph = pipeline.read(path)
    for length in (1, 3, 16):
        values = frame(length, dtype)
        assert_close(in_stages(graph, [], values), by_onnxruntime(path, values))


RUN = """
import sys
import numpy as np
import pipeline
from pipeline.errors import PipelineError

graph = pipeline.read(sys.argv[1])
board = pipeline.Board("board", [pipeline.Device("device", sys.argv[2])])
with pipeline.load(pipeline.build(graph, pipeline.plan(graph, board, stages=1), verify=False)) as running:
    for length in map(int, sys.argv[3:]):
        frame = {"x": np.ones((1, 16, 1), np.float32), "length": np.array(length)}
        try:
            print(running.submit(frame).result(60))
        except PipelineError as error:
            print(error)
"""


@pytest.mark.parametrize("kind", ["cpu", "onnxruntime"])
def test_a_length_of_zero_fails_its_frame_alone(tmp_path: Path, kind: str) -> None:
    """ONNX Runtime divides by it, which ended the process."""
    command = [sys.executable, "-c", RUN, str(write(tmp_path)), kind, "0", "-1", "17", "4"]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert process.returncode == 0, process.stderr
    zero, negative, long, result = filter(None, process.stdout.splitlines())
    for refusal in (zero, negative):
        assert "STFT of s needs a frame_length of at least 1" in refusal
    assert "STFT" in long
    assert float(result.strip("[]")) == pytest.approx(16, rel=1e-5)
