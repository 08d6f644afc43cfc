"""Shapes and values of a TFLite model's tensors from LiteRT.

Run as a program, in a process of its own, it reads a line of JSON and a model from the standard input, and writes
NumPy's archive to the standard output: LiteRT is C++ that aborts on some models, and would take the caller along.  So
it imports nothing of this project.

The line has ``shapes``, those of the inputs in order; ``values``, the numbers of tensors whose values are wanted; and
``frames``, how many to compute.  The archive has ``shape_N`` of each tensor, the same number of axes and -1 where the
frames differ (or nothing if even the number of axes does), and ``value_N``.

Instead, the line may have ``sizes``, the bytes of several models one behind the other; then each is only made ready.
"""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

MOST_THREADS = 4


def probe(model: bytes, shapes: list[list[int]], values: list[int], frames: int) -> dict[str, np.ndarray]:
    """Return all tensors' shapes, and some values."""
    interpreter, is_delegated = open_model(model, shapes)
    if is_delegated:
        values = []
    arrays: dict[str, np.ndarray] = {}
    tensor_shapes = shapes_of(interpreter)
    for number in range(frames):
        try:
            run(interpreter, number)
        except RuntimeError:
            # Random numbers may be no indices that there are.
            break
        if number == 0:
            tensor_shapes = shapes_of(interpreter)
            arrays |= {f"value_{tensor}": np.array(interpreter.get_tensor(tensor)) for tensor in values}
        else:
            current_shapes = shapes_of(interpreter)
            tensor_shapes = {
                tensor: common(shape, current_shapes.get(tensor)) for tensor, shape in tensor_shapes.items()
            }
    return arrays | {f"shape_{tensor}": shape for tensor, shape in tensor_shapes.items() if shape is not None}


def check(models: bytes, sizes: list[int]) -> dict[str, np.ndarray]:
    """Prepare concatenated models, and return nothing of them."""
    begin = 0
    for size in sizes:
        open_model(models[begin : begin + size], [])
        begin += size
    return {}


def open_model(model: bytes, shapes: list[list[int]]) -> tuple[Any, bool]:
    """Return a ready interpreter; True if a delegate may have fused operators."""
    try:
        # Their inner tensors would be missing.
        return open_with(model, shapes, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES), False
    except (RuntimeError, ValueError):
        # Some custom operators are known to a delegate only.
        return open_with(model, shapes, OpResolverType.AUTO), True


def open_with(model: bytes, shapes: list[list[int]], resolver: OpResolverType) -> Any:
    """Return a ready interpreter with certain kernels."""
    interpreter = Interpreter(
        model_content=model,
        experimental_op_resolver_type=resolver,
        experimental_preserve_all_tensors=True,
        # Of a frame that is computed here nothing but its time depends on them.
        num_threads=min(os.cpu_count() or 1, MOST_THREADS),
    )
    for detail, shape in zip(interpreter.get_input_details(), shapes, strict=False):
        if list(detail["shape"]) != shape:
            interpreter.resize_tensor_input(detail["index"], shape)
    interpreter.allocate_tensors()
    return interpreter


def run(interpreter: Any, number: int) -> None:
    """Compute a frame: of zeros first, then a random one."""
    generator = np.random.default_rng(number)
    for detail in interpreter.get_input_details():
        # Of whole numbers 0 and 1: they are often indices.
        frame = generator.uniform(-1, 1, detail["shape"]) * number if number else np.zeros(detail["shape"])
        if np.dtype(detail["dtype"]).kind not in "fc":
            frame = frame > 0
        interpreter.set_tensor(detail["index"], frame.astype(detail["dtype"]))
    interpreter.invoke()


def shapes_of(interpreter: Any) -> dict[int, np.ndarray | None]:
    """Return the shapes of all tensors."""
    return {detail["index"]: np.array(detail["shape"], np.int64) for detail in interpreter.get_tensor_details()}


def common(first: np.ndarray | None, second: np.ndarray | None) -> np.ndarray | None:
    """Return a shape with -1 for differences; None for unequal ranks."""
    if first is None or second is None or first.size != second.size:
        return None
    return np.where(first == second, first, -1)


def main() -> int:
    """Answer the question on the standard input."""
    request = json.loads(sys.stdin.buffer.readline())
    try:
        content = sys.stdin.buffer.read()
        arrays = check(content, **request) if "sizes" in request else probe(content, **request)
    except Exception as error:  # noqa: BLE001 - LiteRT raises several unrelated types
        # In one line, the last: LiteRT itself may have printed others.
        print(" ".join(str(error).split()) or type(error).__name__, file=sys.stderr)
        return 1
    archive = io.BytesIO()
    np.savez(archive, **arrays)  # type: ignore[arg-type]
    sys.stdout.buffer.write(archive.getvalue())
    return 0


if __name__ == "__main__":
    sys.exit(main())
