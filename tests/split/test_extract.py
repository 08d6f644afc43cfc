"""The stages of any legal division give what the unsplit model gives, through TVM."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import pipeline
from pipeline.core.plan.plan import TensorSpec
from pipeline.split.cuts import legal_cuts
from pipeline.split.extract import parts
from pipeline.split.graph import Graph
from tests.support.onnx_models import assert_close, by_onnxruntime, frame, in_stages, node, save, weights
from tests.support.random_models import random_model


def check_everywhere(path: Path, seed: int) -> None:
    """Compare every single cut, and two random divisions into three and four stages, with the unsplit model."""
    graph = pipeline.read(path)
    values = frame(graph)
    expected = in_stages(graph, [], values)
    assert_close(expected, by_onnxruntime(path, values), 1e-4)
    legal = [cut.position for cut in legal_cuts(graph)]
    divisions = [[position] for position in legal]
    generator = random.Random(seed)
    divisions += [sorted(generator.sample(legal, count)) for count in (2, 3) if count <= len(legal)]
    for positions in divisions:
        assert_close(in_stages(graph, positions, values), expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.one_in(3)
def test_random_models_at_every_cut(tmp_path: Path, seed: int) -> None:
    check_everywhere(random_model(tmp_path / "m.onnx", seed, steps=5), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_more_random_models_at_every_cut(tmp_path: Path, seed: int) -> None:
    check_everywhere(random_model(tmp_path / "m.onnx", seed, steps=16, inputs=1 + seed % 3), seed)


@pytest.fixture
def skip_graph(tmp_path: Path) -> Graph:
    """Tensors a and x skip stages; b is an output in the middle; z is read at the end only."""
    nodes = [
        node("Softmax", "x", "a"),
        node("Softmax", "a", "b"),
        node("Softmax", "b", "c"),
        node("MatMul", "c w", "d"),
        node("Concat", "d a x z", "y", axis=1),
    ]
    path = save(tmp_path / "m.onnx", nodes, {"z": (2, 1), "x": (2, 3)}, ["y", "b"], {"w": weights(3, 3)})
    return pipeline.read(path)


def test_tensors_that_skip_stages(skip_graph: Graph) -> None:
    names = [
        ([spec.name for spec in part.inputs], [spec.name for spec in part.outputs])
        for part in parts(skip_graph, [1, 2, 3, 4])
    ]
    assert names == [
        (["x"], ["a"]),
        (["a"], ["b"]),
        (["b"], ["c"]),
        (["c"], ["d"]),
        (["d", "a", "x", "z"], ["y"]),
    ]
    values = frame(skip_graph)
    assert_close(in_stages(skip_graph, [1, 2, 3, 4], values), in_stages(skip_graph, [], values))


def test_the_parts_hold_all_operators_once(skip_graph: Graph) -> None:
    for positions in ([], [2], [1, 3]):
        pieces = parts(skip_graph, positions)
        assert tuple(each for piece in pieces for each in piece.operators) == skip_graph.operators


def test_parity_does_not_depend_on_the_order_of_inputs_and_outputs(skip_graph: Graph) -> None:
    """The graph's inputs are z, x and its outputs y, b; the unsplit stage reads x, z and makes b, y."""
    for stages in (1, 3):
        bundle = pipeline.build(skip_graph, pipeline.plan(skip_graph, stages=stages))
        assert bundle.parity.relative <= 1e-6
        assert bundle.parity.largest_value > 0


def test_branches_without_a_common_tensor(tmp_path: Path) -> None:
    nodes = [node("Softmax", "x", "a"), node("Softmax", "z", "b")]
    path = save(tmp_path / "m.onnx", nodes, {"x": (2, 3), "z": (4,)}, ["b", "a"])
    graph = pipeline.read(path)
    values = frame(graph)
    assert [part.outputs for part in parts(graph, [1])] == [
        (TensorSpec("a", (2, 3)),),
        (TensorSpec("b", (4,)),),
    ]
    assert_close(in_stages(graph, [1], values), by_onnxruntime(path, values))


def test_results_of_one_operator_that_go_to_several_stages(tmp_path: Path) -> None:
    import numpy as np

    nodes = [
        node("Softmax", "x", "s"),
        node("Split", "s sizes", "a b c", axis=1),
        node("Softmax", "b", "d"),
        node("MatMul", "d w", "e"),
        node("Concat", "c e a", "y", axis=1),
    ]
    constants = {"sizes": np.array([1, 2, 3]), "w": weights(2, 2)}
    path = save(tmp_path / "m.onnx", nodes, {"x": (4, 6)}, ["y"], constants)
    graph = pipeline.read(path)
    values = frame(graph)
    for cut in legal_cuts(graph):
        assert_close(in_stages(graph, [cut.position], values), by_onnxruntime(path, values))
    everywhere = [cut.position for cut in legal_cuts(graph)]
    assert_close(in_stages(graph, everywhere, values), by_onnxruntime(path, values))
