"""Nine well-known networks with weights that behave.

The onnx package ships their structure with constant weights, which make every answer the same.  Here each weight is
drawn from a seeded generator: normal ones that keep the activations' size (He), scales and variances near 1, biases and
means small.  A softmax at the end is left out, since it would hide differences; all tensors keep their names.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from pipeline.system.files import write_atomically

NAMES = (
    "squeezenet",
    "shufflenet",
    "resnet50",
    "inception_v1",
    "inception_v2",
    "densenet121",
    "bvlc_alexnet",
    "zfnet512",
    "vgg19",
)
"""From the quickest to the slowest to build and run, roughly."""

_SHAPE_ONLY = ("Unsqueeze", "Reshape")
_POSITIONS = {
    ("Conv", 1): "weight",
    ("Conv", 2): "shift",
    ("Gemm", 1): "weight",
    ("Gemm", 2): "shift",
    ("BatchNormalization", 1): "scale",
    ("BatchNormalization", 2): "shift",
    ("BatchNormalization", 3): "shift",
    ("BatchNormalization", 4): "scale",
    ("Mul", 1): "scale",
    ("Add", 1): "shift",
}
# Residual sums grow from block to block if each branch keeps its size.
_SCALE = (0.65, 1.05)
# Above zero, so that a bias that is dropped or added twice changes the answer; small, so that it does not dominate it.
_SHIFT = 0.01


def write(name: str, folder: Path) -> Path:
    """Write the network to `folder` unless it is there, and return the file.

    Several processes may write the same one at once; each leaves a complete file.
    """
    path = folder / f"{name}.onnx"
    if not path.exists():
        write_atomically(path, load(name).SerializeToString())
    return path


def load(name: str) -> Any:
    """Return the network as an ONNX model; `name` is one of `NAMES`."""
    model = onnx.load(_find_file(name))
    graph = model.graph
    constants = dict(_constants(graph))
    read_tensors = {tensor for node in graph.node if node.op_type != "ConstantOfShape" for tensor in node.input}
    arrays = {tensor: array for tensor, array in constants.items() if tensor in read_tensors}
    for tensor, (role, fan_in) in _roles(graph, arrays).items():
        arrays[tensor] = _draw_weights(f"{name}/{tensor}", arrays[tensor].shape, role, fan_in)
    _rebuild(model, constants.keys(), arrays)
    onnx.checker.check_model(model)
    return model


def _find_file(name: str) -> Path:
    # Found without importing the package, which would run all of onnx's test machinery.
    root = next(iter(find_spec("onnx").submodule_search_locations))  # type: ignore[union-attr, arg-type]
    return Path(root) / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"


def _constants(graph: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each tensor that is filled with one value, or is an initializer."""
    initializers = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    yield from initializers.items()
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            yield node.output[0], np.zeros(initializers[node.input[0]], np.float32)


def _roles(graph: Any, arrays: dict[str, np.ndarray]) -> dict[str, tuple[str, int]]:
    """Return what each float constant is to the operator that reads it, and how many terms each sum over it has."""
    readers = {tensor: (node, position) for node in graph.node for position, tensor in enumerate(node.input)}
    roles = {}
    for tensor, array in arrays.items():
        if array.dtype != np.float32:
            continue
        node, position = readers[tensor]
        # A batch norm written as Mul and Add reads its factors through an Unsqueeze.
        while node.op_type in _SHAPE_ONLY:
            node, position = readers[node.output[0]]
        roles[tensor] = _POSITIONS[node.op_type, position], _fan_in(node, array)
    return roles


def _fan_in(node: Any, array: np.ndarray) -> int:
    if node.op_type == "Gemm" and not any(each.name == "transB" and each.i for each in node.attribute):
        return int(array.shape[0])
    return math.prod(array.shape[1:])


def _draw_weights(seed: str, shape: tuple[int, ...], role: str, fan_in: int) -> np.ndarray:
    # A seed per tensor, so that its values depend on nothing drawn earlier; `hash` of a text differs per process.
    generator = np.random.default_rng(zlib.crc32(seed.encode()))
    if role == "scale":
        return generator.uniform(*_SCALE, shape).astype(np.float32)
    values: np.ndarray = generator.standard_normal(shape, np.float32)
    values *= math.sqrt(2 / fan_in) if role == "weight" else _SHIFT
    return values


def _rebuild(model: Any, constants: Any, arrays: dict[str, np.ndarray]) -> None:
    """Put `arrays` in place of all constants, and let the model end before its softmax."""
    graph = model.graph
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    if nodes[-1].op_type == "Softmax":
        graph.output[0].name = nodes.pop().input[0]
    inputs = [value for value in graph.input if value.name not in constants]
    # Since this version, initializers need not be inputs.
    model.ir_version = max(model.ir_version, 4)
    for field, values in (
        (graph.node, nodes),
        (graph.input, inputs),
        (graph.initializer, [numpy_helper.from_array(array, tensor) for tensor, array in arrays.items()]),
    ):
        del field[:]
        field.extend(values)
