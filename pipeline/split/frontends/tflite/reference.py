"""TFLite files run by LiteRT, the library that TensorFlow Lite has become."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pipeline.core.files import is_utf8
from pipeline.core.optional import require

LIBRARY = "LiteRT"


def evaluate(model: str | Path, frame: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs that LiteRT computes of a frame."""
    litert = require("ai_edge_litert.interpreter", "verify", "verifying TFLite models")
    path = Path(model)
    # LiteRT takes no other names.
    file = {"model_path": str(path)} if is_utf8(path) else {"model_content": path.read_bytes()}
    interpreter = litert.Interpreter(**file)
    inputs = {detail["name"]: detail["index"] for detail in interpreter.get_input_details()}
    for name, index in inputs.items():
        interpreter.resize_tensor_input(index, frame[name].shape)
    interpreter.allocate_tensors()
    for name, index in inputs.items():
        interpreter.set_tensor(index, frame[name])
    interpreter.invoke()
    return [np.array(interpreter.get_tensor(detail["index"])) for detail in interpreter.get_output_details()]
