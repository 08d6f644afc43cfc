"""TFLite files run by LiteRT, formerly TensorFlow Lite."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.litert_outputs import read_output
from pipeline.frontends.tflite.flatbuffer import TfliteGraph
from pipeline.frontends.tflite.variables import open_variables
from pipeline.system.files import is_utf8
from pipeline.system.native_output import quietly
from pipeline.system.optional import require

ALTERNATIVE = "LiteRT's reference kernels"


def evaluate(
    model: str | Path, frame: Mapping[str, np.ndarray], *, alternative: bool = False, runs: int = 1
) -> list[np.ndarray]:
    """Return LiteRT's outputs of the last of some runs.

    Its fast kernels compute them, or as an `alternative` the kernels that define the format.
    """
    interpreter = _run(model, frame, "BUILTIN_REF" if alternative else "AUTO")
    for _ in range(runs - 1):
        interpreter.invoke()
    return [read_output(interpreter, number) for number in range(len(interpreter.get_output_details()))]


def intermediates(model: str | Path, frame: Mapping[str, np.ndarray], names: Collection[str]) -> dict[str, np.ndarray]:
    """Return named inner tensors of a model."""
    # A delegate computes many operators as one, and keeps what lies between them to itself.
    interpreter = _run(model, frame, "BUILTIN_WITHOUT_DEFAULT_DELEGATES", experimental_preserve_all_tensors=True)
    operators = TfliteGraph(open_variables(Path(model).read_bytes())[0]).operators
    tensors = [tensor for operator in operators for tensor in operator.outputs if tensor.name in names]
    return {tensor.name: np.array(interpreter.get_tensor(tensor.number)) for tensor in tensors}


def _run(model: str | Path, frame: Mapping[str, np.ndarray], kernels: str, **options: Any) -> Any:
    """Return an interpreter after a frame, its delegate notice silenced."""
    return quietly(functools.partial(_run_aloud, model, frame, kernels, **options))


def _run_aloud(model: str | Path, frame: Mapping[str, np.ndarray], kernels: str, **options: Any) -> Any:
    litert = require("ai_edge_litert.interpreter", "verify", "verifying TFLite models")
    path = Path(model)
    content, first_values = open_variables(path.read_bytes())
    # LiteRT takes no other names.
    by_name = is_utf8(path) and not first_values
    options |= {"model_path": str(path)} if by_name else {"model_content": content}
    # Its own names need not be unique.
    names = [tensor.name for tensor in TfliteGraph(content).inputs]
    resolver = litert.OpResolverType[kernels]
    shapes = [frame[name].shape for name in names]
    interpreter = open_interpreter(shapes, experimental_op_resolver_type=resolver, **options)
    for name, detail in zip(names, interpreter.get_input_details(), strict=True):
        interpreter.set_tensor(detail["index"], frame[name])
    interpreter.invoke()
    return interpreter


def open_interpreter(shapes: Sequence[Sequence[int]] = (), **options: Any) -> Any:
    """Return LiteRT's ready interpreter; `shapes` are its inputs'."""
    litert = require("ai_edge_litert.interpreter", "verify", "running TFLite models")
    resolver = options.pop("experimental_op_resolver_type", litert.OpResolverType.AUTO)
    try:
        return _open(litert, shapes, resolver, options)
    except RuntimeError:
        if resolver != litert.OpResolverType.AUTO:
            raise
        # Its delegate claims operators that it then refuses, such as resizing from one scale to another.
        return _open(litert, shapes, litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, options)


def _open(litert: Any, shapes: Sequence[Sequence[int]], resolver: Any, options: Mapping[str, Any]) -> Any:
    interpreter = litert.Interpreter(experimental_op_resolver_type=resolver, **options)
    for detail, shape in zip(interpreter.get_input_details(), shapes, strict=False):
        if tuple(detail["shape"]) != tuple(shape):
            interpreter.resize_tensor_input(detail["index"], shape)
    interpreter.allocate_tensors()
    return interpreter
