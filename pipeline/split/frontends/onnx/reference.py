"""ONNX models run by ONNX Runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.optional import require

LIBRARY = "ONNX Runtime"


def evaluate(model: Any, frame: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs that ONNX Runtime computes of a frame.

    Parameters
    ----------
    model : onnx.ModelProto, or the path of one
    frame : mapping of str to numpy.ndarray
        The inputs by name.
    """
    runtime = require("onnxruntime", "verify", "verifying ONNX models")
    options = runtime.SessionOptions()
    # Fatal only: warnings on unused initializers would stand between a command's lines.
    options.log_severity_level = 4
    # A library that optimises may round otherwise, or even be wrong: compare with what the file says.
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # A path where there is one: the data files of a model lie beside it.
    source = os.fspath(model) if isinstance(model, str | Path) else model.SerializeToString()
    session = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, dict(frame))]
