"""TFLite files run by LiteRT, the library that TensorFlow Lite has become."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pipeline.core.optional import require

LIBRARY = "LiteRT"


def evaluate(model: str | Path, frame: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs that LiteRT computes of a frame."""
    litert = require("ai_edge_litert.interpreter", "verify", "verifying TFLite models")
    interpreter = litert.Interpreter(model_path=os.fspath(model))
    inputs = {detail["name"]: detail["index"] for detail in interpreter.get_input_details()}
    for name, index in inputs.items():
        interpreter.resize_tensor_input(index, frame[name].shape)
    interpreter.allocate_tensors()
    for name, index in inputs.items():
        interpreter.set_tensor(index, frame[name])
    interpreter.invoke()
    return [np.array(interpreter.get_tensor(detail["index"])) for detail in interpreter.get_output_details()]
