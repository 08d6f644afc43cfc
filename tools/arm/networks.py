"""Networks whose code is analysed, and their kernels as they are compiled for a core."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import mobilenet
import models
import numpy as np
import onnx
import published_models

import pipeline
from pipeline.core.numerics import EXACT, Numerics
from pipeline.executor import host_target, kernels
from pipeline.executor.kernels import provenance
from pipeline.quantization.quantize import quantize
from pipeline.split import extract
from pipeline.system.native_output import quietly
from pipeline.tvm.access import compiler_lock, tvm

INT8 = "_int8"
WEIGHED = ("mobilenet_v2", "efficientnet_lite0", "yolov8n")
"""Networks that people run on such boards: loops are weighed by their share of time there."""

NAMES = (
    *WEIGHED,
    *(f"{name}{INT8}" for name in WEIGHED),
    "squeezenet",
    "resnet50",
    "inception_v1",
    f"squeezenet{INT8}",
)


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
    plain_name, is_int8 = name.removesuffix(INT8), name.endswith(INT8)
    if name == f"{WEIGHED[0]}{INT8}":
        # Quantised as ONNX Runtime does it, which leaves no activation behind a convolution.
        onnx.save(mobilenet.model(), folder / "plain.onnx")
        graph = pipeline.read(_quantize(folder / "plain.onnx", folder / f"{name}.onnx"))
    elif plain_name in WEIGHED:
        graph = published_models.graph(plain_name, precision="int8" if is_int8 else "float32")
    else:
        plain = models.write(plain_name, folder)
        graph = pipeline.read(_quantize(plain, folder / f"{name}.onnx") if is_int8 else plain)
    return extract.module(extract.parts(graph, [])[0])


def _quantize(plain: Path, file: Path) -> Path:
    source = pipeline.read(plain).inputs[0]
    quantize(plain, [{source.name: np.random.default_rng(0).standard_normal(source.shape).astype(np.float32)}], file)
    return file


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
    known = {name: count for name, (_, count) in kernels.kernels(optimised).items() if count}
    # A kernel that writes over its operand has a number behind its name.
    names = ((name, re.sub(r"_over\d+$", "", name)) for name in functions)
    operations = {name: known[plain] for name, plain in names if plain in known}
    return CompiledNetwork(functions, operations, calls, library)
