"""Networks whose code is analysed, and their kernels as they are compiled for a core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import models
import numpy as np
import onnx
from onnx_network import INPUT, OnnxNetwork

import pipeline
from pipeline.core.numerics import EXACT, Numerics
from pipeline.executor import host_target, kernels
from pipeline.executor.kernels import provenance
from pipeline.quantization.quantize import quantize
from pipeline.split import extract
from pipeline.system.native_output import quietly
from pipeline.tvm.access import compiler_lock, tvm

MOBILENET = "mobilenet"
INT8 = "_int8"
NAMES = ("squeezenet", "resnet50", "inception_v1", MOBILENET, f"squeezenet{INT8}", f"{MOBILENET}{INT8}")

# MobileNet's pairs of a depthwise and a pointwise convolution: channels, and the stride of the first.
_PAIRS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
_SIDE = 224


class CompiledNetwork(NamedTuple):
    """Network for one core.

    Attributes
    ----------
    functions : dict
        The kernels in TIR, by name.
    operations : dict
        Of one call of each, where they are known.
    calls : Counter
        Of each function in one frame.
    library : Path
        Object file with all of them.
    """

    functions: dict[str, Any]
    operations: dict[str, int]
    calls: Counter[str]
    library: Path


def module(name: str, folder: Path) -> Any:
    """Return the module of a network's only stage; `name` is one of `NAMES`."""
    file = folder / f"{name}.onnx"
    if name.endswith(INT8):
        plain = _write(name.removesuffix(INT8), folder)
        graph = pipeline.read(plain)
        source = graph.inputs[0]
        frame = np.random.default_rng(0).standard_normal(source.shape).astype(np.float32)
        quantize(plain, [{source.name: frame}], file)
    else:
        file = _write(name, folder)
    return extract.module(extract.parts(pipeline.read(file), [])[0])


def compile_network(
    stage: Any, target: Mapping[str, object] | Any, library: Path, numerics: Numerics = EXACT
) -> CompiledNetwork:
    """Compile a stage's kernels for a target into an object file; weights and virtual machine are left out."""
    with compiler_lock:
        chosen = host_target.target(target) if isinstance(target, Mapping) else target
        chosen = kernels.target_for(chosen)
        optimised = kernels.optimise(stage, chosen, numerics=numerics)
        functions = {
            str(variable.name_hint): function
            for variable, function in optimised.functions.items()
            if isinstance(function, tvm.tirx.PrimFunc)
        }
        code = tvm.IRModule(functions)
        quietly(lambda: tvm.tirx.build(code, chosen, pipeline=kernels.tir_pipeline(chosen)).write_to_file(str(library)))
    calls = Counter(name for name, _ in provenance.calls(optimised) or ())
    operations = {name: count for name, (_, count) in kernels.kernels(optimised).items() if count}
    return CompiledNetwork(functions, operations, calls, library)


def _write(name: str, folder: Path) -> Path:
    if name != MOBILENET:
        return models.write(name, folder)
    file = folder / f"{name}.onnx"
    if not file.exists():
        onnx.save(mobilenet(), file)
    return file


def mobilenet() -> onnx.ModelProto:
    """Return a network like MobileNet (version 1, 224 pixels, batch norms folded) with random weights."""
    network, width = OnnxNetwork(np.random.default_rng(0)), 32
    value = network.rectified("stem", INPUT, (3, width), 3, 2)
    for number, (channels, stride) in enumerate(_PAIRS):
        value = network.rectified(f"depthwise{number}", value, (width, width), 3, stride, width)
        value = network.rectified(f"pointwise{number}", value, (width, channels), 1)
        width = channels
    network.classifier(value, width)
    return network.model(MOBILENET, _SIDE)
