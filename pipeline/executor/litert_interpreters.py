"""LiteRT interpreters of packed models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pipeline.core import packed_value
from pipeline.core.litert_outputs import read_output
from pipeline.system.optional import require


def open_model(model: bytes, threads: int) -> Callable[[Sequence[np.ndarray]], None]:
    """Return a single-thread function of a TFLite model, outputs behind inputs."""
    interpreter = _open_interpreter(model, threads)
    inputs = [detail["index"] for detail in interpreter.get_input_details()]
    outputs = [detail["index"] for detail in interpreter.get_output_details()]

    def compute(arrays: Sequence[np.ndarray]) -> None:
        for index, array in zip(inputs, arrays, strict=False):
            interpreter.set_tensor(index, _encode(packed_value.read(array)))
        interpreter.invoke()
        for number, (target, index) in enumerate(zip(arrays[len(inputs) :], outputs, strict=True)):
            # Asking for a shape takes time, and only what is packed has another one for each frame.
            is_packed = packed_value.is_packed_array(target)
            packed_value.write(target, read_output(interpreter, number) if is_packed else interpreter.get_tensor(index))

    return compute


def _encode(value: np.ndarray) -> np.ndarray:
    """Return text as LiteRT takes it."""
    return np.array(value, dtype=str).astype(object) if value.dtype == object else value


def _open_interpreter(model: bytes, threads: int) -> Any:
    litert = require("ai_edge_litert.interpreter", "litert", "operators that LiteRT computes")
    try:
        interpreter = litert.Interpreter(model_content=model, num_threads=threads)
        interpreter.allocate_tensors()
    except RuntimeError:
        # Its delegate claims operators that it then refuses.
        interpreter = litert.Interpreter(
            model_content=model,
            num_threads=threads,
            experimental_op_resolver_type=litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        )
        interpreter.allocate_tensors()
    return interpreter
