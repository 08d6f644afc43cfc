"""Legal cuts, what crosses them, and the names that users give them, on a drawn graph.

x --- conv --- relu --- pool ------------- concat --- add --- soft --- y
                |                            |         |
                +------ conv2 --- relu2 -----+         |
z -----------------------------------------------------+

A convolution and its relu are one group; so are concat and add, as TVM fuses them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.errors import PlanError
from pipeline.split.cuts import Cut, bounds, crossing_bytes, legal_cuts, resolve
from pipeline.split.graph import Graph
from tests.support.onnx_models import LIGHT, node, save, weights
from tests.support.random_models import random_model


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    nodes = [
        node("Conv", "x w b", "c1", "conv", pads=[1] * 4),
        node("Relu", "c1", "r1", "relu"),
        node("Identity", "r1", "again", "identity"),
        node("MaxPool", "again", "p", "pool", kernel_shape=[1, 1]),
        node("Conv", "r1 w", "c2", "conv2", pads=[1] * 4),
        node("Relu", "c2", "r2", "relu2"),
        node("Concat", "p r2", "cat", "concat", axis=1),
        node("Add", "cat z", "sum", "add"),
        node("Softmax", "sum", "y", "soft", axis=1),
    ]
    constants = {"w": weights(4, 4, 3, 3), "b": weights(4)}
    return pipeline.read(save(tmp_path / "drawn.onnx", nodes, {"x": (1, 4, 6, 6), "z": (1, 8, 6, 6)}, ["y"], constants))


SMALL, LARGE = 4 * 4 * 36, 4 * 8 * 36


def test_the_drawn_graph(graph: Graph) -> None:
    cuts = [(cut.position, cut.after, [spec.name for spec in cut.crossing], cut.nbytes) for cut in legal_cuts(graph)]
    assert cuts == [
        (2, "relu", ["r1"], SMALL),
        (3, "pool", ["r1", "p"], 2 * SMALL),
        (5, "relu2", ["p", "r2"], 2 * SMALL),
        (7, "add", ["sum"], LARGE),
    ]


def test_crossing_bytes_are_those_of_the_legal_cuts(graph: Graph, tmp_path: Path) -> None:
    assert crossing_bytes(graph) == [cut.nbytes for cut in legal_cuts(graph)]
    for seed in range(12):
        graph = pipeline.read(random_model(tmp_path / "m.onnx", seed, steps=20))
        assert crossing_bytes(graph) == [cut.nbytes for cut in legal_cuts(graph)]


def crossing_by_definition(graph: Graph, position: int) -> set[str]:
    outputs = {name for operator in graph.operators[:position] for name in operator.outputs}
    return outputs & {name for operator in graph.operators[position:] for name in operator.inputs}


@pytest.mark.parametrize("seed", range(6))
def test_crossing_tensors_equal_their_definition(tmp_path: Path, seed: int) -> None:
    graph = pipeline.read(random_model(tmp_path / "m.onnx", seed, steps=25))
    for cut in legal_cuts(graph):
        assert {spec.name for spec in cut.crossing} == crossing_by_definition(graph, cut.position)
        assert graph.operators[cut.position - 1].name == cut.after


def test_squeezenet_has_at_most_two_tensors_across_a_cut() -> None:
    """Folded first, as biases would cross otherwise."""
    (path,) = [path for path in LIGHT if "squeezenet" in path.name]
    cuts = legal_cuts(pipeline.read(path))
    assert len(cuts) == 38
    assert max(len(cut.crossing) for cut in cuts) == 2


@pytest.mark.parametrize(
    ("cut", "position"),
    [
        ("r1", 2),
        ("relu", 2),
        (2, 2),
        ("2", 2),
        (np.int64(2), 2),
        ("c1", 2),
        ("conv", 2),
        ("again", 2),
        ("c2", 5),
        ("concat", 7),
        ("cat", 7),
    ],
    ids=str,
)
def test_cuts_by_tensor_operator_position_and_folded_name(graph: Graph, cut: str | int, position: int) -> None:
    """A name inside a fused group stands for the group's end."""
    assert resolve(graph, [cut]) == [position]


def test_cuts_come_back_in_order(graph: Graph) -> None:
    assert resolve(graph, ["cat", 3, "relu"]) == [2, 3, 7]
    assert resolve(graph, []) == []
    assert bounds(graph, [2, 7]) == [(0, 2), (2, 7), (7, len(graph.operators))]


@pytest.mark.parametrize(
    ("cuts", "message"),
    [
        (["relu3"], r"unknown cut 'relu3'; did you mean 'relu' or 'relu2'"),
        (["concta"], r"did you mean 'concat'"),
        (["zzzz"], r"unknown cut 'zzzz'; list the cuts with soc-pipeline inspect"),
        (["x"], r"'x' is a model input; a cut there would leave the first stage empty"),
        (["y"], r"a cut at 'y' would leave the last stage empty"),
        (["soft"], r"a cut at 'soft' would leave the last stage empty"),
        (["r1", 2], r"cuts 'r1' and 2 are at the same place \(2\)"),
        (["conv", "relu"], r"cuts 'conv' and 'relu' are at the same place \(2\)"),
        (["cat", "cat"], r"cuts 'cat' and 'cat' are at the same place \(7\)"),
        ([1], r"position 1 is not a legal cut; the nearest are 2 and 3"),
        ([4], r"position 4 is not a legal cut; the nearest are 3 and 5"),
        ([0], r"position 0 is not a legal cut"),
        ([9], r"position 9 is not a legal cut; the nearest are 5 and 7"),
        ([-1], r"position -1 is not a legal cut"),
        ([True], r"True is not a cut"),
        ([2.5], r"2.5 is not a cut"),
    ],
    ids=str,
)
def test_wrong_cuts_are_refused(graph: Graph, cuts: list[str | int], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        resolve(graph, cuts)


def test_an_alias_of_an_input_is_no_cut(tmp_path: Path) -> None:
    nodes = [node("Identity", "x", "same"), node("Relu", "same", "r"), node("Softmax", "r", "y")]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"]))
    with pytest.raises(PlanError, match="'same' is a model input"):
        resolve(graph, ["same"])


def test_a_graph_of_one_group_has_no_cut(tmp_path: Path) -> None:
    graph = pipeline.read(
        save(tmp_path / "m.onnx", [node("Relu", "x", "r"), node("Neg", "r", "y")], {"x": (2,)}, ["y"])
    )
    assert legal_cuts(graph) == []
    with pytest.raises(PlanError, match="position 1 is not a legal cut; this graph has none"):
        resolve(graph, [1])


def test_a_number_as_name_goes_before_the_position(tmp_path: Path) -> None:
    nodes = [node("Softmax", "x", "2"), node("Softmax", "2", "1"), node("Softmax", "1", "y")]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["y"]))
    assert resolve(graph, ["1"]) == [2]
    assert resolve(graph, [1]) == [1]


def test_outputs_do_not_cross(tmp_path: Path) -> None:
    """A tensor that only the caller reads leaves the pipeline; it does not travel to the next stage."""
    nodes = [node("Softmax", "x", "a"), node("Softmax", "x", "y")]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (2, 3)}, ["a", "y"]))
    assert legal_cuts(graph) == [Cut(1, "a", ())]
