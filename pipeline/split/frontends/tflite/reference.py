"""TFLite files run by LiteRT, the library that TensorFlow Lite has become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.files import is_utf8
from pipeline.core.optional import require
from pipeline.split.frontends.tflite.flatbuffer import TfliteGraph

LIBRARY = "LiteRT"


def evaluate(model: str | Path, frame: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs that LiteRT computes of a frame."""
    path = Path(model)
    # LiteRT takes no other names.
    file = {"model_path": str(path)} if is_utf8(path) else {"model_content": path.read_bytes()}
    # Its own names need not be unique.
    names = [tensor.name for tensor in TfliteGraph(path.read_bytes()).inputs]
    interpreter = open_interpreter(**file, shapes=[frame[name].shape for name in names])
    for name, detail in zip(names, interpreter.get_input_details(), strict=True):
        interpreter.set_tensor(detail["index"], frame[name])
    interpreter.invoke()
    return [np.array(interpreter.get_tensor(detail["index"])) for detail in interpreter.get_output_details()]


def open_interpreter(shapes: Sequence[Sequence[int]] = (), **options: Any) -> Any:
    """Return LiteRT's interpreter of a model, ready to be run; `shapes` are those of its inputs, in order."""
    litert = require("ai_edge_litert.interpreter", "verify", "running TFLite models")
    interpreter = litert.Interpreter(**options)
    for detail, shape in zip(interpreter.get_input_details(), shapes, strict=False):
        if tuple(detail["shape"]) != tuple(shape):
            interpreter.resize_tensor_input(detail["index"], shape)
    interpreter.allocate_tensors()
    return interpreter
