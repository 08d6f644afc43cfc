"""Models with random shapes: run, and compared with ONNX Runtime or with themselves on several cores."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import pipeline
from pipeline.core.numerics import EXACT, Numerics
from pipeline.core.plan.plan import StagePlan
from pipeline.executor import host_target, kernels
from pipeline.executor.build import compile_stage
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.executor.executable import CompileOptions
from pipeline.executor.kernels import microarchitecture
from pipeline.executor.kernels.microarchitecture import Microarchitecture
from pipeline.split import extract
from pipeline.split.extract import GraphPart
from tests.support.onnx_models import HOST, assert_close, by_onnxruntime, frame, in_stages, save

Drawn = tuple[list[Any], dict[str, tuple[int, ...]], dict[str, np.ndarray]]
"""Nodes that make ``y``, inputs, constants."""

Kind = Callable[[random.Random], Drawn]


def check(kind: Kind, seed: int, folder: Path, *, opset: int = 17, tolerance: float = 1e-5) -> None:
    """Compare a model with ONNX Runtime."""
    nodes, inputs, constants = kind(random.Random(f"{kind.__name__}{seed}"))
    path = save(folder / "model.onnx", nodes, inputs, ["y"], constants, opset=opset)
    graph = pipeline.read(path)
    values = frame(graph)
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values), tolerance)


def check_cores(kind: Kind, folder: Path, *, opset: int = 17) -> None:
    """Compare a model on three cores with itself on one, however little there is to compute."""
    nodes, inputs, constants = kind(random.Random(kind.__name__))
    graph = pipeline.read(save(folder / "model.onnx", nodes, inputs, ["y"], constants, opset=opset))
    part, values = extract.parts(graph, [])[0], frame(graph)
    single_core, three_cores = (by_cores(part, values, cores) for cores in (1, 3))
    np.testing.assert_allclose(three_cores, single_core, rtol=0, atol=1e-6 * float(np.abs(single_core).max()))


def eager_microarchitecture(**changes: Any) -> Microarchitecture:
    """Return this processor's microarchitecture with changes, and all its cores woken for anything."""
    cpu = microarchitecture.of_target(kernels.target_for(host_target.host_target()))
    return dataclasses.replace(cpu, task_operations=1, **changes)


def by_cores(
    part: GraphPart,
    values: Mapping[str, np.ndarray],
    cores: int,
    cpu: Microarchitecture | None = None,
    numerics: Numerics = EXACT,
) -> np.ndarray:
    """Run a model's only stage, compiled for so many cores, however little there is to compute."""
    runtime = CpuRuntime(HOST)
    cpu = cpu or eager_microarchitecture()
    code = compile_stage(extract.module(part), HOST, cores, CompileOptions(microarchitecture=cpu, numerics=numerics))
    program = runtime.load(StagePlan("test", "cpu", part.inputs, part.outputs), code)
    results = runtime.run(program, [runtime.copy_in(values[spec.name]) for spec in part.inputs])
    return np.array(runtime.copy_out(results[0]))


def image(draw: random.Random, channels: int) -> dict[str, tuple[int, ...]]:
    """Return an input of batch, channels, height, width."""
    return {"x": (draw.choice((1, 1, 2)), channels, draw.randint(5, 19), draw.randint(5, 19))}


def odd(draw: random.Random) -> int:
    """Return a number of channels, often no multiple of a vector."""
    return draw.choice((1, 3, 5, 7, 8, 12, 16, 17, 31, 32, 33, 40, 48, 65))


def window(draw: random.Random) -> dict[str, Any]:
    """Return ONNX's attributes of a window."""
    size = [draw.choice((1, 1, 2, 3, 3, 5)), draw.choice((1, 1, 2, 3, 3, 5))]
    dilations = [draw.choice((1, 1, 2)) if each < 3 else 1 for each in size]
    pads = [draw.randint(0, each - 1) for each in [*size, *size]]
    strides = [draw.choice((1, 1, 2, 3)), draw.choice((1, 1, 2, 3))]
    return {"kernel_shape": size, "dilations": dilations, "pads": pads, "strides": strides}
