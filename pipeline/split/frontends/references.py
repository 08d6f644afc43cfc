"""References: a model run by the library that its format belongs to, to compare with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import ModelError
from pipeline.extras import require
from pipeline.split import frontends
from pipeline.split.frontends.formats import Format

Arrays = Mapping[str, np.ndarray]


def run(model: Any, frame: Arrays) -> tuple[str, list[np.ndarray]]:
    """Run one frame through a model, apart from all that this package does.

    Parameters
    ----------
    model : str, Path, or torch.export.ExportedProgram
    frame : mapping of str to numpy.ndarray
        The inputs by name.

    Returns
    -------
    name : str
        The library.
    outputs : list of numpy.ndarray
        In the model's order.

    Raises
    ------
    ModelError
        If no library runs such models, or this one fails.
    MissingExtra
        If it is not installed.
    """
    found = frontends.kind(model)
    if found not in _RUNNERS:
        raise ModelError(f"{found.value} cannot be verified: no other library runs it")
    name, runner = _RUNNERS[found]
    try:
        return name, runner(model, frame)
    except (ModelError, ImportError):
        raise
    except Exception as error:  # each library raises types of its own
        reason = str(error).strip().splitlines()
        raise ModelError(f"{name} cannot run the model: {reason[0] if reason else type(error).__name__}") from error


def _onnx(model: str | Path, frame: Arrays) -> list[np.ndarray]:
    runtime = require("onnxruntime", "verify", "verifying ONNX models")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    # A library that optimises may round otherwise, or even be wrong: compare with what the file says.
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(os.fspath(model), options, providers=["CPUExecutionProvider"])
    return [np.asarray(each) for each in session.run(None, dict(frame))]


def _torch(model: Any, frame: Arrays) -> list[np.ndarray]:
    from pipeline.split.frontends.torch import evaluate

    return evaluate(model, frame)


def _tflite(model: str | Path, frame: Arrays) -> list[np.ndarray]:
    litert = require("ai_edge_litert.interpreter", "verify", "verifying TFLite models")
    interpreter = litert.Interpreter(model_path=os.fspath(model))
    inputs = {each["name"]: each["index"] for each in interpreter.get_input_details()}
    for name, index in inputs.items():
        interpreter.resize_tensor_input(index, frame[name].shape)
    interpreter.allocate_tensors()
    for name, index in inputs.items():
        interpreter.set_tensor(index, frame[name])
    interpreter.invoke()
    return [np.array(interpreter.get_tensor(each["index"])) for each in interpreter.get_output_details()]


_RUNNERS: dict[Format, tuple[str, Callable[[Any, Arrays], list[np.ndarray]]]] = {
    Format.ONNX: ("ONNX Runtime", _onnx),
    Format.TORCH: ("PyTorch", _torch),
    Format.TFLITE: ("LiteRT", _tflite),
}
