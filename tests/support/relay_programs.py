"""Relay programs for the tests: small ones are run as they are imported, stored ones have parameters and results."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from pipeline.executor.linker import link
from pipeline.frontends import relay
from pipeline.frontends.relay import parser
from pipeline.frontends.relay.syntax import TensorType
from pipeline.model.imported_model import ImportedModel
from pipeline.system.native_output import quietly
from pipeline.tvm.access import compiler_lock

Arrays = Mapping[str, np.ndarray]
HEADER = '#[version = "0.0.5"]\n'

STORED = ("dcgan", "dqn", "mlp", "mobilenet", "multi", "quantized_conv", "resnet18", "squeezenet")
WITH_JSON = ("mlp", "multi", "quantized_conv", "resnet18", "squeezenet")
SMALL = ("mlp", "multi", "quantized_conv")

NETWORK = f"""{HEADER}
def @main(%x: Tensor[(1, 8, 12, 12), float32], %b: Tensor[(1, 8, 12, 12), float32], %w1: Tensor[(8, 8, 3, 3), float32],
          %scale: Tensor[(8,), float32], %shift: Tensor[(8,), float32], %w2: Tensor[(10, 8), float32]) {{
  %0 = nn.conv2d(%x, %w1, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]);
  %1 = nn.batch_norm(%0, %scale, %shift, %shift, %scale);
  let %v = nn.relu(%1.0);
  %2 = add(%v, %b);
  %3 = nn.batch_flatten(nn.global_avg_pool2d(%2));
  %4 = nn.softmax(nn.dense(%3, %w2, units=10));
  (%2, %4)
}}"""
"""A residual network with two inputs and two outputs."""


def network_parameters() -> dict[str, np.ndarray]:
    """Return random parameters of it; the scale is also the variance, and the shift the mean."""
    scale = np.abs(1 + 0.1 * random(8))
    return {
        "w1": random(8, 8, 3, 3, seed=1) / 6,
        "scale": scale,
        "shift": random(8, seed=2),
        "w2": random(10, 8, seed=3),
    }


def import_program(text: str, constants: Arrays | None = None) -> ImportedModel:
    """Import a program; without a header it is the body of ``@main`` with its parameters."""
    complete = text if text.startswith(("#[", "{")) else f"{HEADER}def @main{text}"
    return relay.read(complete, "test.relay", "test", {}, constants or {})


def results(text: str, inputs: Arrays, constants: Arrays | None = None) -> list[np.ndarray]:
    """Import a program, run it, and return all its results."""
    module = import_program(text, constants).module
    order = [str(param.name) for param in module["main"].params]
    with compiler_lock:
        machine = quietly(lambda: relax.VirtualMachine(relax.build(module, "llvm").jit(fcompile=link), tvm.cpu()))
    output = machine["main"](*(tvm.runtime.tensor(np.ascontiguousarray(inputs[name])) for name in order))
    return [each.numpy() for each in ([output] if hasattr(output, "numpy") else output)]


def result(text: str, inputs: Arrays, constants: Arrays | None = None) -> np.ndarray:
    """Import a program, run it, and return its only result."""
    (output,) = results(text, inputs, constants)
    return output


def apply(call: str, *operands: np.ndarray, **constants: np.ndarray) -> np.ndarray:
    """Run one call, in which the operands are called %a, %b, ... and the constants have their names."""
    inputs = dict(zip("abcdefgh", operands, strict=False))
    return result(f"({signature({**inputs, **constants})}) {{ {call} }}", inputs, constants)


def signature(arrays: Arrays) -> str:
    """Return the parameters of a function that takes these arrays."""
    return ", ".join(f"%{name}: {type_text(array)}" for name, array in arrays.items())


def type_text(array: np.ndarray) -> str:
    """Return the type of an array in Relay's text."""
    extents = ", ".join(map(str, array.shape)) + ("," if array.ndim == 1 else "")
    return f"Tensor[({extents}), {array.dtype}]"


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    """Return normally distributed floats, or whole numbers of the whole range of a small dtype."""
    generator = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return generator.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return generator.integers(max(limits.min, -1000), min(limits.max, 1000), shape).astype(dtype)


def stored_parameters(folder: Path, name: str) -> dict[str, np.ndarray]:
    """Return the parameters of a stored program, made as its README says."""
    program = parser.parse((folder / f"{name}.relay").read_text(), name)
    with np.load(folder / f"{name}.npz") as arrays:
        inputs = {key.removeprefix("in:") for key in arrays.files if key.startswith("in:")}
    parameters = {each.name: each.type for each in program.functions["main"].parameters if each.name not in inputs}
    return {key: _random_parameter(key, ty) for key, ty in parameters.items()}


def _random_parameter(name: str, ty: Any) -> np.ndarray:
    assert isinstance(ty, TensorType)
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    values: Any = generator.standard_normal(tuple(extent or 1 for extent in ty.shape))
    if name.endswith(("moving_var", "running_var", "_gamma")):
        values = np.abs(1 + 0.1 * values)
    elif len(ty.shape) > 1:
        values = values * np.sqrt(2.0 / np.prod(values.shape[1:]))
    else:
        values = 0.1 * values
    return np.asarray(values.astype(ty.dtype))
