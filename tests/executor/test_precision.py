"""Sums of 16-bit numbers are taken in float32, by our kernels and by TVM's, and builds are compared with float32."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tvm import relax

import pipeline
from pipeline.comparison.random_frame import random_frame
from pipeline.errors import BuildError
from pipeline.executor import precision
from pipeline.split.graph import Graph
from pipeline.workflow import unsplit
from tests.support.onnx_models import in_stages, node, save
from tests.support.relax_models import module, run

op = relax.op
Make = Callable[..., Any]
Arrays = dict[str, np.ndarray]


def uniform(*shape: int) -> np.ndarray:
    """Numbers from 0 to 1: their sum in float16 stands still at 2,048."""
    return np.random.default_rng([0, *shape]).random(shape).astype(np.float16)


def normalized_model(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> Any:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * scale + shift


def softmax(x: np.ndarray) -> Any:
    return np.exp(x) / np.exp(x).sum(1, keepdims=True)


def windows(x: np.ndarray, w: np.ndarray) -> Any:
    fields = np.lib.stride_tricks.sliding_window_view(x, w.shape[1:], axis=(1, 2, 3))
    return np.einsum("nzyxchw,ochw->noyx", fields, w)


LONG = {"x": uniform(2, 10_000)}
PAIR = {"x": uniform(2, 4096), "y": uniform(4096, 16)}
SUMS: dict[str, tuple[Make, dict[str, np.ndarray], Make]] = {
    "sum": (lambda x: op.sum(x, axis=[1]), LONG, lambda x: x.sum(1)),
    "mean": (lambda x: op.mean(x, axis=[1]), LONG, lambda x: x.mean(1)),
    "variance": (lambda x: op.variance(x, axis=[1]), LONG, lambda x: x.var(1)),
    "std": (lambda x: op.std(x, axis=[1]), LONG, lambda x: x.std(1)),
    "collapse_sum_to": (lambda x: op.collapse_sum_to(x, (2, 1)), LONG, lambda x: x.sum(1, keepdims=True)),
    "cumsum": (lambda x: op.cumsum(x, axis=1), LONG, lambda x: x.cumsum(1)),
    "cumsum of its dtype": (lambda x: op.cumsum(x, axis=1, dtype="float16"), LONG, lambda x: x.cumsum(1)),
    "softmax": (lambda x: op.nn.softmax(x, axis=1), LONG, softmax),
    "log_softmax": (lambda x: op.nn.log_softmax(x, axis=1), LONG, lambda x: np.log(softmax(x))),
    "layer_norm": (
        lambda x, a, b: op.nn.layer_norm(x, a, b, [1]),
        {**LONG, "a": uniform(10_000), "b": uniform(10_000)},
        normalized_model,
    ),
    "dense": (op.matmul, PAIR, lambda x, y: x @ y),
    "dense of its dtype": (lambda x, y: op.matmul(x, y, out_dtype="float16"), PAIR, lambda x, y: x @ y),
    "batched": (op.matmul, {"x": uniform(3, 2, 4096), "y": uniform(3, 4096, 8)}, lambda x, y: x @ y),
    "einsum": (lambda x, y: op.einsum((x, y), "ij,jk->ik"), PAIR, lambda x, y: x @ y),
    "conv2d": (op.nn.conv2d, {"x": uniform(1, 64, 10, 10), "w": uniform(8, 64, 9, 9)}, windows),
    "avg_pool2d": (
        lambda x: op.nn.avg_pool2d(x, (64, 64), (64, 64)),
        {"x": uniform(1, 8, 64, 64)},
        lambda x: x.mean((2, 3), keepdims=True),
    ),
    "adaptive_avg_pool2d": (
        lambda x: op.nn.adaptive_avg_pool2d(x, [1, 1]),
        {"x": uniform(1, 8, 112, 112)},
        lambda x: x.mean((2, 3), keepdims=True),
    ),
}


@pytest.mark.parametrize("kind", SUMS)
@pytest.mark.one_in(2)
def test_sums_are_taken_in_float32(kind: str) -> None:
    make, inputs, exact = SUMS[kind]
    outputs = run(module(inputs, lambda emit, *values: emit(make(*values))), inputs)
    assert outputs.dtype == np.float16
    reference = exact(*(value.astype(np.float64) for value in inputs.values()))
    # One rounding to 11 bits.
    np.testing.assert_allclose(outputs.astype(np.float64), reference, rtol=0, atol=6e-4 * np.abs(reference).max())


SCATTERS: dict[str, Make] = {
    "scatter_nd": lambda z, i, x, kind: op.scatter_nd(z, op.expand_dims(i, 1), x, kind),
    "scatter_elements": lambda z, i, x, kind: op.scatter_elements(z, i, x, 0, kind),
}


@pytest.mark.parametrize("kind", SCATTERS)
@pytest.mark.parametrize("reduction", ["add", "mul"])
def test_updates_of_one_element_accumulate_in_float32(kind: str, reduction: str) -> None:
    updates = uniform(8192) if reduction == "add" else 1 + uniform(8192) / np.float16(1024)
    inputs: Arrays = {"z": np.ones(2, np.float16), "i": np.ones(8192, np.int64), "x": updates}
    scatters = module(inputs, lambda emit, z, i, x: emit(SCATTERS[kind](z, i, x, reduction)))
    outputs = run(scatters, inputs)
    assert outputs.dtype == np.float16
    wide_updates = updates.astype(np.float64)
    reference = 1 + wide_updates.sum() if reduction == "add" else wide_updates.prod()
    np.testing.assert_allclose(outputs, [1, reference], rtol=1e-3)


def test_assignments_that_accumulate_do_so_in_float32() -> None:
    inputs: Arrays = {"z": np.ones(2, np.float16), "i": np.ones(8192, np.int64), "x": uniform(8192)}
    outputs = run(module(inputs, lambda emit, z, i, x: emit(op.index_put(z, (i,), x, accumulate=True))), inputs)
    np.testing.assert_allclose(outputs, [1, 1 + inputs["x"].sum(dtype=np.float64)], rtol=1e-3)


@pytest.mark.parametrize("kind", SCATTERS)
@pytest.mark.parametrize("reduction", ["update", "max"])
def test_scatters_that_sum_nothing_are_left_alone(kind: str, reduction: str) -> None:
    inputs: Arrays = {"z": np.ones(2, np.float16), "i": np.ones(3, np.int64), "x": uniform(3)}
    scatters = module(inputs, lambda emit, z, i, x: emit(SCATTERS[kind](z, i, x, reduction)))
    assert precision.widen_calls(scatters) is scatters


def test_what_sums_nothing_is_left_alone() -> None:
    inputs = {"x": uniform(2, 3)}
    rounded_sums = module(inputs, lambda emit, x: emit(op.nn.relu(emit(op.add(x, x)))))
    assert precision.widen_calls(rounded_sums) is rounded_sums
    wide_inputs = {"x": uniform(2, 3).astype(np.float32)}
    rounded_sums = module(wide_inputs, lambda emit, x: emit(op.sum(x)))
    assert precision.widen_calls(rounded_sums) is rounded_sums


def half(path: Path, nodes: list[Any], constants: dict[str, np.ndarray] | None = None) -> Graph:
    kinds = dict.fromkeys(("x", "y"), TensorProto.FLOAT16)
    return pipeline.read(save(path / "m.onnx", nodes, {"x": (1, 8, 112, 112)}, ["y"], constants, dtypes=kinds))


@pytest.mark.parametrize(("kind", "shape"), [("ScatterND", (8192, 1)), ("ScatterElements", (8192,))])
def test_scatters_of_onnx(tmp_path: Path, kind: str, shape: tuple[int, ...]) -> None:
    kinds = dict.fromkeys(("x", "y"), TensorProto.FLOAT16)
    constants: Arrays = {"z": np.zeros(1, np.float16), "i": np.zeros(shape, np.int64)}
    nodes = [node(kind, "z i x", "y", reduction="add")]
    path = save(tmp_path / "m.onnx", nodes, {"x": (8192,)}, ["y"], constants, opset=18, dtypes=kinds)
    values = uniform(8192)
    outputs = in_stages(pipeline.read(path), [], {"x": values})["y"]
    np.testing.assert_allclose(outputs, [values.sum(dtype=np.float64)], rtol=1e-3)


@pytest.fixture
def pool_model(tmp_path: Path) -> Graph:
    return half(tmp_path, [node("Exp", "x", "e"), node("GlobalAveragePool", "e", "y")])


def test_a_global_average_pool_of_onnx(pool_model: Graph) -> None:
    values = uniform(1, 8, 112, 112)
    outputs = in_stages(pool_model, [], {"x": values})["y"]
    reference = np.exp(values.astype(np.float64)).mean((2, 3), keepdims=True)
    np.testing.assert_allclose(outputs, reference, rtol=1e-3)


def test_builds_are_compared_with_float32(pool_model: Graph) -> None:
    plan = pipeline.plan(pool_model, stages=1)
    reference = unsplit.outputs_of(pool_model, plan, [random_frame(pool_model.inputs, 0)])[0]["y"]
    assert reference.dtype == np.float32
    parity = pipeline.build(pool_model, plan).parity
    assert parity is not None
    assert 0 < parity.relative < 1e-3, "the stages round to float16"
    assert parity.tolerance == 2e-2


def test_rounding_that_decides_is_compared_with_itself(tmp_path: Path) -> None:
    graph = half(tmp_path, [node("GlobalAveragePool", "x", "p"), node("Floor", "p", "y")])
    (reference,) = unsplit.outputs_of(graph, pipeline.plan(graph, stages=1), [random_frame(graph.inputs, 0)])
    assert reference["y"].dtype == np.float16


@pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="Arm processors compute with halves")
def test_operators_in_a_row_are_computed_in_float32(tmp_path: Path) -> None:
    """2,048.5 is 2,048 in float16; the stage's output alone is rounded."""
    graph = half(tmp_path, [node("Add", "x c", "a"), node("Sub", "a c", "y")], {"c": np.full(112, 2048, np.float16)})
    values = np.full((1, 8, 112, 112), 0.5, np.float16)
    assert in_stages(graph, [], {"x": values})["y"].ravel()[0] == np.float16(0.5)


def test_weights_of_float16_are_widened_with_what_they_meet(tmp_path: Path) -> None:
    weights = uniform(4, 8, 112, 112) - np.float16(0.25)
    graph = half(tmp_path, [node("Conv", "x w", "y")], {"w": weights})
    values = uniform(1, 8, 112, 112)
    reference = np.einsum("nchw,ochw->no", values.astype(np.float64), weights.astype(np.float64))
    outputs = in_stages(graph, [], {"x": values})["y"]
    np.testing.assert_allclose(outputs.reshape(1, 4), reference, rtol=1e-3)


@pytest.mark.parametrize("tolerance", [math.nan, math.inf, -math.inf, -1.0, "much"])
def test_a_tolerance_is_a_share(pool_model: Graph, tolerance: Any) -> None:
    plan = pipeline.plan(pool_model, stages=1)
    with pytest.raises(BuildError, match=r"tolerance is .*; it must be a share of the largest output"):
        pipeline.build(pool_model, plan, tolerance=tolerance)
    with pytest.raises(BuildError, match=r"tolerance is .*; it must be a share of the largest output"):
        pipeline.verify(pool_model, "model.onnx", tolerance=tolerance)


def test_narrow_numbers_that_the_model_s_runtime_computes_with(tmp_path: Path) -> None:
    """Its operators stay narrow beside the wide ones that builds are compared with."""
    nodes = [node("Neg", "x", "n"), node("RoiAlign", "n r i", "y")]
    dtypes = dict.fromkeys("xry", TensorProto.FLOAT16)
    shapes = {"x": (1, 1, 8, 8), "r": (1, 4)}
    path = save(tmp_path / "m.onnx", nodes, shapes, ["y"], {"i": np.zeros(1, np.int64)}, dtypes=dtypes, opset=16)
    graph = pipeline.read(path)
    assert graph.islands
    assert pipeline.build(graph, pipeline.plan(graph, stages=1)).parity.largest_error == 0
