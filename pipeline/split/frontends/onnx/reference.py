"""ONNX models run by ONNX Runtime."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.files import is_utf8, utf8_folder
from pipeline.core.optional import require

LIBRARY = "ONNX Runtime"


def evaluate(model: Any, frame: Mapping[str, np.ndarray]) -> list[Any]:
    """Return the outputs that ONNX Runtime computes of a frame.

    Parameters
    ----------
    model : onnx.ModelProto, or the path of one
    frame : mapping of str to numpy.ndarray
        The inputs by name.
    """
    session = open_session(model, literal_options())
    # Sequences and maps stay what they are.
    return [
        output if isinstance(output, list | dict) else np.asarray(output) for output in session.run(None, dict(frame))
    ]


def has_runtime() -> bool:
    """Return whether ONNX Runtime is installed."""
    return importlib.util.find_spec("onnxruntime") is not None


def literal_options() -> Any:
    """Return options with which ONNX Runtime computes what the file says, and prints nothing."""
    runtime = require("onnxruntime", "verify", "verifying ONNX models")
    options = runtime.SessionOptions()
    # Fatal only: warnings on unused initializers would stand between a command's lines.
    options.log_severity_level = 4
    # A library that optimises may round otherwise, or even be wrong.
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def open_session(model: Any, options: Any) -> Any:
    """Return ONNX Runtime's session of a model or file, whatever its name; `options` are for this session alone."""
    runtime = require("onnxruntime", "verify", "running ONNX models")
    providers = ["CPUExecutionProvider"]
    if not isinstance(model, str | Path):
        return runtime.InferenceSession(model.SerializeToString(), options, providers=providers)
    path = Path(model)
    # A path where there is one: the data files of a model lie beside it.
    if is_utf8(path):
        return runtime.InferenceSession(str(path), options, providers=providers)
    # ONNX Runtime takes no other names; of the bytes alone it cannot know where the data files lie.
    with utf8_folder(path.parent) as folder:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        return runtime.InferenceSession(path.read_bytes(), options, providers=providers)
