"""Small ONNX models for tests, and the ways to run them: by ONNX Runtime, unsplit, and in stages."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import pipeline
from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.executor.build import compile_stage
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.split import extract
from pipeline.split.graph import Graph

Arrays = dict[str, np.ndarray]
LIGHT = sorted((Path(str(onnx.__file__)).parent / "backend/test/data/light").glob("*.onnx"))
"""The nine models that the onnx wheel ships."""

HOST = Device("cpu")


def weights(*shape: int, seed: int = 0, positive: bool = False) -> np.ndarray:
    """Return seeded values around zero, or between 0.5 and 1.5."""
    generator = np.random.default_rng([seed, *shape])
    values = generator.uniform(0.5, 1.5, shape) if positive else generator.standard_normal(shape)
    return values.astype(np.float32)


def node(kind: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> Any:
    """Return a node; names of tensors are separated by blanks, and ``-`` stands for an absent one."""
    sources, targets = (["" if each == "-" else each for each in text.split()] for text in (inputs, outputs))
    return helper.make_node(kind, sources, targets, name=name, **attributes)


IMAGE = {"x": (1, 4, 6, 6)}
NORM = {
    f"{name}{number}": weights(4, seed=seed, positive=name == "v")
    for number in (1, 2)
    for seed, name in enumerate("sbmv")
}
KERNEL = {"w": weights(4, 4, 3, 3) / 6}
CONV = node("Conv", "x w", "c", "conv", pads=[1, 1, 1, 1])
"""A small image, two batch norms for its channels, a convolution's weights, and that convolution."""


def batch_norm(number: int, source: str, target: str, **attributes: Any) -> Any:
    """Return batch norm 1 or 2 of `NORM`."""
    parameters = " ".join(f"{name}{number}" for name in "sbmv")
    return node("BatchNormalization", f"{source} {parameters}", target, f"norm{number}", **attributes)


def save(
    path: Path,
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    dtypes: Mapping[str, int] | None = None,
    opset: int = 17,
) -> Path:
    """Write a model; `dtypes` gives ONNX's number for inputs and outputs that are not float32."""
    kinds = dtypes or {}
    graph = helper.make_graph(
        list(nodes),
        "test",
        [
            helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), inputs.get(name)) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    domains = {each.domain for each in nodes} - {""}
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def curve(path: Path, alpha: float) -> Path:
    """Save a network whose second operator depends on `alpha`."""
    nodes = [
        node("Conv", "x w", "c", "first", pads=[1] * 4), node("Elu", "c", "e", "middle", alpha=alpha),
        node("Abs", "e", "i", "third"), node("Conv", "i w", "y", "last", pads=[1] * 4),
    ]  # fmt: skip
    return save(path, nodes, {"x": (1, 4, 6, 6)}, ["y"], {"w": weights(4, 4, 3, 3) / 6})


def kinds(graph: Graph) -> list[str]:
    """Return the kinds of calls that the graph's operators are taken apart into, in order."""
    return [call.kind for operator in graph.operators for call in operator.calls]


def frame(graph: Graph, seed: int = 1) -> Arrays:
    """Return seeded values for each input."""
    generator = np.random.default_rng(seed)
    return {spec.name: generator.standard_normal(spec.shape).astype(spec.dtype) for spec in graph.inputs}


def by_onnxruntime(path: Path, values: Mapping[str, np.ndarray], *, fused: bool = True) -> Arrays:
    """Run a model by ONNX Runtime on one thread; not `fused`, quantised operators are computed with real numbers."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not fused:
        # Kernels for bytes, which later optimisations choose, cut sums to 16 bits on processors with AVX2 and no more.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(values)), strict=True))


def in_stages(graph: Graph, positions: Sequence[int], values: Mapping[str, np.ndarray]) -> Arrays:
    """Compile and run the stages between cuts at `positions`, one after the other, and return the model's outputs."""
    live = dict(values)
    for part in extract.parts(graph, positions):
        stage, runtime = StagePlan("test", "cpu", part.inputs, part.outputs), CpuRuntime(HOST)
        program = runtime.load(stage, compile_stage(extract.module(part), HOST))
        results = runtime.run(program, [runtime.copy_in(live[spec.name]) for spec in part.inputs])
        assert len(results) == len(part.outputs)
        for spec, tensor in zip(part.outputs, results, strict=True):
            live[spec.name] = runtime.copy_out(tensor).copy()
            assert (live[spec.name].shape, str(live[spec.name].dtype)) == (spec.shape, spec.dtype)
    return {spec.name: live[spec.name] for spec in graph.outputs}


def assert_close(
    actual: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray], tolerance: float = 1e-5
) -> None:
    """Compare names, shapes, dtypes, and values up to a share of each tensor's largest one."""
    assert list(actual) == list(reference)
    for name, value in reference.items():
        assert (actual[name].shape, actual[name].dtype) == (value.shape, value.dtype), name
        largest = float(np.max(np.abs(value), initial=0)) if value.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(actual[name], value, rtol=0, atol=tolerance * largest, err_msg=name)


def check_outputs(path: Path) -> Graph:
    """Read a model, compare the cleaned graph's outputs with ONNX Runtime's, and return the graph."""
    graph = pipeline.read(path)
    values = frame(graph)
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values))
    return graph
