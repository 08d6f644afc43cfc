"""RNN, LSTM and GRU as operators of our own: in all forms, against ONNX Runtime, and cut on both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import pipeline
from pipeline.errors import ModelError
from pipeline.split.cuts import legal_cuts
from tests.support.onnx_models import assert_close, by_onnxruntime, check_outputs, frame, in_stages, kinds, node, save

pytestmark = pytest.mark.thorough

STEPS, BATCH, FEATURES, HIDDEN = 5, 3, 7, 19
GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(-0.4, 0.4, shape).astype(np.float32)


def model(path: Path, kind: str, operands: str = "", **attributes: Any) -> Path:
    """Write a model of one recurrent operator; `operands` are the first letters of the optional ones that it has."""
    directions, gates = 2 if attributes.get("direction") == "bidirectional" else 1, GATES[kind]
    state = (BATCH, directions, HIDDEN) if attributes.get("layout") else (directions, BATCH, HIDDEN)
    constants = {
        "w": weights(directions, gates * HIDDEN, FEATURES),
        "r": weights(directions, gates * HIDDEN, HIDDEN),
        "b": weights(directions, 2 * gates * HIDDEN),
        "lengths": np.array([5, 2, 4], np.int32),
        "h": weights(*state),
        "c": weights(*state) * 2,
        "p": weights(directions, 3 * HIDDEN),
    }
    names = ["x", "w", "r", *(name if name[0] in operands else "" for name in ("b", "lengths", "h", "c", "p"))]
    names = names[:8] if kind == "LSTM" else names[:6]
    outputs = ["y", "yh", "yc"][: 3 if kind == "LSTM" else 2]
    recurrent = helper.make_node(kind, names, outputs, name="recurrent", hidden_size=HIDDEN, **attributes)
    shape = (BATCH, STEPS, FEATURES) if attributes.get("layout") else (STEPS, BATCH, FEATURES)
    used = {name: value for name, value in constants.items() if name in names}
    return save(path / "m.onnx", [recurrent], {"x": shape}, outputs, used)


FORMS: list[tuple[str, str, dict[str, Any]]] = [
    (kind, operands, {"direction": direction})
    for kind in GATES
    for operands, direction in (("", "forward"), ("bh", "reverse"), ("bhcp", "bidirectional"), ("bl", "bidirectional"))
]
FORMS += [
    ("GRU", "bh", {"linear_before_reset": 1}),
    ("GRU", "", {"linear_before_reset": 1, "direction": "bidirectional"}),
    ("LSTM", "b", {"input_forget": 1, "clip": 0.3}),
    ("RNN", "b", {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]}),
    (
        "GRU",
        "b",
        {"activations": ["HardSigmoid", "ScaledTanh"], "activation_alpha": [0.3, 0.7], "activation_beta": [0.4, 0.9]},
    ),
    ("LSTM", "b", {"activations": ["Sigmoid", "Softsign", "Relu"]}),
]


@pytest.mark.parametrize(("kind", "operands", "attributes"), FORMS, ids=str)
def test_a_form(tmp_path: Path, kind: str, operands: str, attributes: dict[str, Any]) -> None:
    path = model(tmp_path, kind, operands, **attributes)
    graph = pipeline.read(path, fallback=False)
    assert kind.lower() in kinds(graph)
    values = frame(graph)
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values))


@pytest.mark.parametrize("name", ["LeakyRelu", "ThresholdedRelu", "Elu", "Softplus", "Softsign", "Sigmoid"])
def test_an_activation(tmp_path: Path, name: str) -> None:
    check_outputs(model(tmp_path, "RNN", "b", activations=[name], activation_alpha=[0.3]))


def test_the_batch_first(tmp_path: Path) -> None:
    """ONNX Runtime has no such form, but the onnx package's evaluator does."""
    from onnx.reference import ReferenceEvaluator

    path = model(tmp_path, "LSTM", "bh", layout=1)
    graph = pipeline.read(path)
    values = frame(graph)
    expected = ReferenceEvaluator(str(path)).run(None, values)
    assert_close(in_stages(graph, [], values), dict(zip(["y", "yh", "yc"], expected, strict=True)))


def test_it_is_cut_on_both_sides(tmp_path: Path) -> None:
    constants = {"w": weights(1, 4 * HIDDEN, FEATURES), "r": weights(1, 4 * HIDDEN, HIDDEN), "axis": np.array([1])}
    nodes = [
        node("Relu", "x", "a", "first"),
        node("LSTM", "a w r", "y", "recurrent", hidden_size=HIDDEN),
        node("Squeeze", "y axis", "s", "squeeze"),
        node("Exp", "s", "z", "last"),
    ]
    path = save(tmp_path / "m.onnx", nodes, {"x": (STEPS, BATCH, FEATURES)}, ["z"], constants)
    graph = pipeline.read(path, fallback=False)
    values = frame(graph)
    reference = by_onnxruntime(path, values)
    positions = [cut.position for cut in legal_cuts(graph)]
    assert len(positions) >= 2
    for position in positions:
        assert_close(in_stages(graph, [position], values), reference)
    # The steps' products: what the planner weighs it by.
    recurrent = next(operator for operator in graph.operators if operator.kind == "lstm")
    assert recurrent.flops >= 2 * STEPS * BATCH * 4 * HIDDEN * HIDDEN


def test_another_dtype_is_left_to_onnxruntime(tmp_path: Path) -> None:
    constants = {
        "w": weights(1, HIDDEN, FEATURES).astype(np.float64),
        "r": weights(1, HIDDEN, HIDDEN).astype(np.float64),
    }
    nodes = [helper.make_node("RNN", ["x", "w", "r"], ["y"], name="n", hidden_size=HIDDEN)]
    dtypes = dict.fromkeys("xy", TensorProto.DOUBLE)
    path = save(tmp_path / "m.onnx", nodes, {"x": (STEPS, BATCH, FEATURES)}, ["y"], constants, dtypes=dtypes)
    with pytest.raises(ModelError, match="of float64, which is not supported"):
        pipeline.read(path, fallback=False)
