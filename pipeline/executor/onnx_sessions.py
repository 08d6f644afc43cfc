"""ONNX Runtime sessions of packed models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pipeline.core import packed_value
from pipeline.system.optional import require


def open_model(model: bytes, threads: int) -> Callable[[Sequence[np.ndarray]], None]:
    """Return a function of an ONNX model, outputs behind inputs."""
    session = _open_session(model, threads)
    # Once: it would list them anew for each frame.
    inputs = [value.name for value in session.get_inputs()]

    def compute(arrays: Sequence[np.ndarray]) -> None:
        results = session.run(None, dict(zip(inputs, map(packed_value.read, arrays), strict=False)))
        for target, result in zip(arrays[len(inputs) :], results, strict=True):
            packed_value.write(target, result)

    return compute


def _open_session(model: bytes, threads: int) -> Any:
    runtime = require("onnxruntime", "onnxruntime", "operators that ONNX Runtime computes")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Fatal only: what fails is raised as an error, too.
    options.log_severity_level = 4
    # Between frames its threads would spin on cores that other stages need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers = ["CPUExecutionProvider"]
    try:
        return runtime.InferenceSession(model, options, providers=providers)
    except Exception:
        # Its optimiser fails on branches that are never taken, which a model's fixed extents do not fit.
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        with contextlib.suppress(Exception):
            return runtime.InferenceSession(model, options, providers=providers)
        raise
