"""Group and instance normalization over any shape and on several cores, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tvm import relax

import pipeline
from pipeline.split import extract
from tests.support.onnx_models import assert_close, by_onnxruntime, frame, in_stages, node, save, weights
from tests.support.random_networks import by_cores
from tests.support.relax_models import constant, kernels, module, run

EPSILON = 1e-3

SHAPES = {
    "vectors": (1, 32, 8, 8),
    "odd pixels": (2, 12, 5, 7),
    "one pixel": (3, 8, 1, 1),
    "one axis": (2, 6, 37),
    "three axes": (1, 4, 3, 5, 4),
}


def model(folder: Path, shape: tuple[int, ...], groups: int) -> Path:
    """Save a group normalization, rectified."""
    constants = {"s": weights(shape[1]), "b": weights(shape[1], seed=1)}
    nodes = [
        node("GroupNormalization", "x s b", "n", num_groups=groups, epsilon=EPSILON),
        node("Relu", "n", "y"),
    ]
    path = save(folder / "model.onnx", nodes, {"x": shape}, ["y"], constants, opset=21)
    # ONNX infers no shapes behind this operator.
    saved = onnx.load(path)
    for extent in shape:
        saved.graph.output[0].type.tensor_type.shape.dim.add(dim_value=extent)
    onnx.save(saved, path)
    return path


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES.values() if shape[1] % 4 == 0], ids=str)
@pytest.mark.one_in(2)
def test_groups_are_those_of_onnxruntime(shape: tuple[int, ...], groups: int, tmp_path: Path) -> None:
    path = model(tmp_path, shape, groups)
    graph = pipeline.read(path)
    assert "group_norm" in kernels(extract.module(extract.parts(graph, [])[0])).values()
    values = frame(graph)
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values), 1e-5)


@pytest.mark.parametrize(("center", "scale"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.one_in(2)
def test_instances_are_those_of_onnxruntime(shape: tuple[int, ...], center: bool, scale: bool, tmp_path: Path) -> None:
    gamma, beta = weights(shape[1]), weights(shape[1], seed=1)
    # A mean that is large beside the deviation cancels in a single pass.
    values = {"x": weights(*shape, seed=2) + np.float32(3)}

    def make(emit: Any, x: Any) -> Any:
        axes = list(range(2, len(shape)))
        return emit(relax.op.nn.instance_norm(x, constant(gamma), constant(beta), 1, axes, EPSILON, center, scale))

    normalization = module(values, make)
    assert set(kernels(normalization).values()) == {"group_norm"}
    constants = {"s": gamma if scale else np.ones_like(gamma), "b": beta if center else np.zeros_like(beta)}
    nodes = [node("InstanceNormalization", "x s b", "y", epsilon=EPSILON)]
    path = save(tmp_path / "model.onnx", nodes, {"x": shape}, ["y"], constants)
    assert_close({"y": run(normalization, values)}, by_onnxruntime(path, values), 1e-5)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_instances_of_onnx_are_normalised_whole(shape: tuple[int, ...], tmp_path: Path) -> None:
    constants = {"s": weights(shape[1]), "b": weights(shape[1], seed=1)}
    nodes = [node("InstanceNormalization", "x s b", "n", epsilon=EPSILON), node("Relu", "n", "y")]
    path = save(tmp_path / "model.onnx", nodes, {"x": shape}, ["y"], constants)
    graph = pipeline.read(path)
    assert set(kernels(extract.module(extract.parts(graph, [])[0])).values()) == {"group_norm"}
    values = frame(graph)
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values), 1e-5)


def test_instances_of_doubles_are_compiled(tmp_path: Path) -> None:
    """TVM has no code for the operator in this dtype, nor has ONNX Runtime."""
    double = onnx.TensorProto.DOUBLE
    constants = {"s": weights(4).astype(np.float64), "b": weights(4, seed=1).astype(np.float64)}
    nodes = [node("InstanceNormalization", "x s b", "y", epsilon=EPSILON)]
    dtypes = {"x": double, "y": double}
    graph = pipeline.read(save(tmp_path / "model.onnx", nodes, {"x": (2, 4, 5, 5)}, ["y"], constants, dtypes=dtypes))
    x = frame(graph)["x"]
    deviation = np.sqrt(x.var(axis=(2, 3), keepdims=True) + EPSILON)
    scale, shift = (constants[name].reshape(1, 4, 1, 1) for name in "sb")
    expected = (x - x.mean(axis=(2, 3), keepdims=True)) / deviation * scale + shift
    np.testing.assert_allclose(in_stages(graph, [], {"x": x})["y"], expected, rtol=1e-5)


def test_several_cores_compute_the_same(tmp_path: Path) -> None:
    graph = pipeline.read(model(tmp_path, (2, 12, 5, 7), 4))
    part, values = extract.parts(graph, [])[0], frame(graph)
    np.testing.assert_array_equal(by_cores(part, values, 3), by_cores(part, values, 1))
