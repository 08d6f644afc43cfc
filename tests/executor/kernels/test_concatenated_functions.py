"""Functions of rows that are concatenated, whose loops end within vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.core.plan.plan import StagePlan
from pipeline.executor.build import compile_stage
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.split import extract
from tests.support.onnx_models import HOST, node, save

CASES = {
    "no more than a vector": (3, 9),
    "whole vectors": (32, 64),
    "ends within vectors": (33, 15, 1, 47),
    "one place": (1, 1),
    "many parts": tuple(range(1, 13)),
    "large enough for two cores": (1600, 400, 100),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", CASES.values(), ids=CASES)
@pytest.mark.one_in(2)
def test_a_function_of_concatenated_transposes(sizes: tuple[int, ...], threads: int, tmp_path: Path) -> None:
    names = [f"x{number}" for number in range(len(sizes))]
    nodes = [node("Transpose", name, f"t{name}", perm=[0, 2, 1]) for name in names]
    nodes += [node("Concat", " ".join(f"t{name}" for name in names), "c", axis=2), node("Sigmoid", "c", "s")]
    # A second reader of the row, with other borders.
    nodes += [node("Pad", "s pads", "y", mode="constant")]
    inputs = {name: (1, size, 40) for name, size in zip(names, sizes, strict=True)}
    pads = np.array([0, 0, 3, 0, 0, 5], np.int64)
    graph = pipeline.read(save(tmp_path / "model.onnx", nodes, inputs, ["y"], {"pads": pads}))
    (part,) = extract.parts(graph, [])
    generator = np.random.default_rng(0)
    frame = {spec.name: generator.standard_normal(spec.shape).astype(np.float32) for spec in part.inputs}
    runtime = CpuRuntime(HOST)
    code = compile_stage(extract.module(part), HOST, threads)
    program = runtime.load(StagePlan("s", "cpu", part.inputs, part.outputs), code)
    (result,) = runtime.run(program, [runtime.copy_in(frame[spec.name]) for spec in part.inputs])
    row = np.concatenate([frame[name].transpose(0, 2, 1) for name in names], 2)
    expected = np.pad(1 / (1 + np.exp(-row)), [(0, 0), (0, 0), (3, 5)])
    np.testing.assert_allclose(runtime.copy_out(result), expected, rtol=1e-5, atol=1e-6)
