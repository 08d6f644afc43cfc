"""Recurrent models: outputs that are the next frame's inputs, kept by the pipeline for each stream."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.cli import main
from pipeline.core.plan.plan import Plan
from pipeline.errors import ModelError, PlanError
from pipeline.scheduler import FrameFuture
from tests.support.onnx_models import node, save

ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

STREAMS = 4
FEATURES, HIDDEN = 8, 16
STATES = {"h": "hn"}
ROUNDING = 2e-4
"""For silero-vad on noise: ONNX Runtime's own loop moves by 5e-5 if each sample moves by a last bit."""
LONG = pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(-0.4, 0.4, shape).astype(np.float32)


def gru_model(folder: Path) -> Path:
    """Write two layers, a GRU with the state h, and two layers."""
    constants = {
        "w0": weights(FEATURES, FEATURES),
        "w": weights(1, 3 * HIDDEN, FEATURES),
        "r": weights(1, 3 * HIDDEN, HIDDEN),
        "b": weights(1, 6 * HIDDEN),
        "w1": weights(HIDDEN, 5),
        "flat": np.array([1, HIDDEN], np.int64),
    }
    nodes = [
        node("MatMul", "x w0", "m"),
        node("Tanh", "m", "e"),
        node("GRU", "e w r b - h", "y hn", hidden_size=HIDDEN),
        node("Reshape", "y flat", "f"),
        node("MatMul", "f w1", "g"),
        node("Tanh", "g", "z"),
    ]
    return save(folder / "gru.onnx", nodes, {"x": (1, 1, FEATURES), "h": (1, 1, HIDDEN)}, ["z", "hn"], constants)


def by_loop(path: Path, frames: Sequence[Mapping[str, np.ndarray]], states: Mapping[str, str]) -> np.ndarray:
    """Return the first output of ONNX Runtime's own loop over a stream."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    shapes = {
        value.name: [extent if isinstance(extent, int) else 1 for extent in value.shape]
        for value in session.get_inputs()
    }
    kept = {name: np.zeros(shapes[name], np.float32) for name in states}
    names = [value.name for value in session.get_outputs()]
    results = []
    for frame in frames:
        outputs = dict(zip(names, session.run(None, {**frame, **kept}), strict=True))
        kept = {name: outputs[output] for name, output in states.items()}
        results.append(outputs[names[0]])
    return np.array(results)


def check(  # noqa: PLR0917 - a case and its folder
    path: Path, graph: Any, plan: Plan, states: Mapping[str, str], steps: int, folder: Path, **constants: Any
) -> None:
    """Compare interleaved streams of a saved bundle with loops."""
    pipeline.build(graph, plan).save(folder / "m.bundle")
    (spec, *_) = (spec for spec in plan.inputs if spec.name not in constants)
    random = np.random.default_rng(0)
    streams = [random.standard_normal((steps, *spec.shape)).astype(np.float32) for _ in range(STREAMS)]
    futures: list[list[FrameFuture]] = [[] for _ in streams]
    with pipeline.load(folder / "m.bundle") as running:
        for step in range(steps):
            for number, stream in enumerate(streams):
                frame = {spec.name: stream[step], **constants}
                futures[number].append(running.submit(frame, stream=f"stream {number}"))
    for stream, ended in zip(streams, futures, strict=True):
        expected = by_loop(path, [{spec.name: frame, **constants} for frame in stream], states)
        results = np.array([next(iter(future.outputs().values())) for future in ended])
        np.testing.assert_allclose(results, expected, atol=ROUNDING if constants or len(states) > 1 else 2e-6)


@pytest.mark.parametrize("steps", [200, LONG])
def test_a_gru_streams_as_a_loop(tmp_path: Path, steps: int) -> None:
    path = gru_model(tmp_path)
    graph = pipeline.read(path, states=STATES)
    plan = pipeline.plan(graph, cuts=["e", "f"])
    assert [spec.name for spec in plan.inputs] == ["x"]
    assert [spec.name for spec in plan.outputs] == ["z"]
    check(path, graph, plan, STATES, steps, tmp_path)


SILERO = importlib.util.find_spec("silero_vad")


@pytest.mark.skipif(SILERO is None, reason="the package silero-vad is not installed")
@pytest.mark.parametrize(
    ("file", "states"),
    [("silero_vad_16k_op15", {"state": "stateN"}), ("silero_vad_16k_sequence", {"h": "hn", "c": "cn"})],
)
@pytest.mark.parametrize("steps", [200, LONG])
def test_silero_vad_streams_as_a_loop(tmp_path: Path, file: str, states: dict[str, str], steps: int) -> None:
    assert SILERO is not None
    assert SILERO.origin is not None
    path = Path(SILERO.origin).parent / "data" / f"{file}.onnx"
    names = {value.name for value in ort.InferenceSession(str(path)).get_inputs()}
    shapes = {name: shape for name, shape in {"input": [1, 576], "state": [2, 1, 128]}.items() if name in names}
    constants = {"sr": np.array(16000, np.int64)} if "sr" in names else {}
    graph = pipeline.read(path, shapes, states=states)
    check(path, graph, pipeline.plan(graph, stages=2), states, steps, tmp_path, **constants)


def test_a_state_is_never_cut_apart(tmp_path: Path) -> None:
    """Its readers and its writer are one group; whoever insists is told so."""
    constants = {"w": weights(FEATURES, FEATURES)}
    nodes = [
        node("Add", "x h", "a"),
        node("MatMul", "a w", "b"),
        node("Tanh", "b", "c"),
        node("Abs", "c", "y"),
    ]
    nodes += [node("MatMul", "y w", "hn"), node("MatMul", "hn w", "z")]
    path = save(tmp_path / "m.onnx", nodes, {"x": (1, FEATURES), "h": (1, FEATURES)}, ["z", "hn"], constants)
    graph = pipeline.read(path, states=STATES)
    assert [operator.group for operator in graph.operators] == [0, 0, 0, 0, 0, 1]
    with pytest.raises(PlanError, match=r"state 'h' is read by stage 'stage0' and written as 'hn' by stage 'stage1'"):
        pipeline.plan(graph, cuts=["b"], allow_unfused=True)
    check(path, graph, pipeline.plan(graph, stages=2), STATES, 40, tmp_path)


def test_the_only_output_may_be_a_state(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Add", "x h", "hn")], {"x": (1, 4), "h": (1, 4)}, ["hn"], {})
    graph = pipeline.read(path, states=STATES)
    check(path, graph, pipeline.plan(graph, stages=1), STATES, 20, tmp_path)


def test_likely_states_are_suggested(tmp_path: Path) -> None:
    graph = pipeline.read(gru_model(tmp_path))
    assert graph.states == ()
    assert any("give --state hn:h" in note for note in graph.notes)
    assert not any("--state" in note for note in pipeline.read(gru_model(tmp_path), states=STATES).notes)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"hh": "hn"}, "has no input 'hh' for a state"),
        ({"h": "zz"}, "has no output 'zz' for a state"),
        ({"h": "z"}, r"the state h: float32\[1, 1, 16\] differs from its output z: float32\[1, 5\]"),
    ],
)
def test_impossible_states_are_refused(tmp_path: Path, states: dict[str, str], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        pipeline.read(gru_model(tmp_path), states=states)


def test_models_of_open_sizes_have_no_state(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Add", "x h", "hn")], {"x": ("N", 4), "h": (1, 4)}, ["hn"], {})
    with pytest.raises(ModelError, match="is read at one size"):
        pipeline.read(path, {"x": ["N", 4]}, states=STATES)


def test_chained_models_keep_their_states(tmp_path: Path) -> None:
    """Also where they have the same names."""
    path = gru_model(tmp_path)
    first = pipeline.read(path, states=STATES)
    nodes = [node("Add", "z h", "hn"), node("Tanh", "hn", "t")]
    last = save(tmp_path / "last.onnx", nodes, {"z": (1, 5), "h": (1, 5)}, ["t", "hn"], {})
    graph = pipeline.chain({"first": first, "last": pipeline.read(last, states=STATES)})
    assert len(graph.states) == 2
    frames = np.random.default_rng(0).standard_normal((20, 1, 1, FEATURES)).astype(np.float32)
    inner = by_loop(path, [{"x": frame} for frame in frames], STATES)
    expected = by_loop(last, [{"z": frame} for frame in inner], STATES)
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=2))) as running:
        np.testing.assert_allclose(np.array(list(running.map(frames))), expected, atol=2e-6)


def test_the_model_card_may_hold_the_pairs(tmp_path: Path) -> None:
    path = gru_model(tmp_path)
    path.with_suffix(".toml").write_text('states = { h = "hn" }\n')
    assert [state.output for state in pipeline.read(path).states] == ["hn"]


def test_commands_take_the_pairs(tmp_path: Path) -> None:
    path, frames = gru_model(tmp_path), np.random.default_rng(0).standard_normal((9, 1, 1, FEATURES))
    np.save(tmp_path / "x.npy", frames.astype(np.float32))
    bundle, results = tmp_path / "m.bundle", tmp_path / "y.npz"
    assert main(["build", str(path), "--state", "hn:h", "-o", str(bundle)]) == 0
    assert main(["run", str(bundle), "--source", str(tmp_path / "x.npy"), "--sink", str(results)]) == 0
    expected = by_loop(path, [{"x": frame.astype(np.float32)} for frame in frames], STATES)
    with np.load(results) as archive:
        np.testing.assert_allclose(archive["z"].reshape(expected.shape), expected, atol=2e-6)
