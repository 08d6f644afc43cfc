"""Models of one's own, connected: from several files to one bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax, te, tirx

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.errors import ModelError, PlanError
from pipeline.split.chain import join
from tests.support.onnx_models import by_onnxruntime, node, save, weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chain")


def convolution(path: Path, read: str, target: str, channels: int, seed: int) -> Path:
    """Save a convolution and a ReLU whose inner names are those of every other one."""
    nodes = [
        node("Conv", f"{read} w", "inner", "conv", pads=[1] * 4),
        node("Relu", "inner", target, "relu"),
    ]
    values = {"w": weights(8, channels, 3, 3, seed=seed) / 6}
    return save(path, nodes, {read: (1, channels, 8, 8)}, [target], values)


@pytest.fixture(scope="module")
def front(folder: Path) -> Path:
    return convolution(folder / "front.onnx", "image", "features", 4, 0)


@pytest.fixture(scope="module")
def back(folder: Path) -> Path:
    return convolution(folder / "back.onnx", "features", "result", 8, 1)


@pytest.fixture(scope="module")
def nameless(folder: Path) -> Path:
    """A model whose tensors have the names of the model before it."""
    return convolution(folder / "nameless.onnx", "image", "features", 8, 1)


IMAGE = weights(1, 4, 8, 8, seed=9)


def one_after_the_other(front: Path, back: Path) -> np.ndarray:
    features = by_onnxruntime(front, {"image": IMAGE})["features"]
    content = pipeline.read(back).inputs[0].name
    return next(iter(by_onnxruntime(back, {content: features}).values()))


def result(bundle: Any) -> np.ndarray:
    with pipeline.load(bundle) as running:
        return np.asarray(running.submit(IMAGE).result(60))


def test_models_are_connected_by_name_and_saved_as_one_bundle(front: Path, back: Path, tmp_path: Path) -> None:
    bundle = pipeline.build([front, back])
    assert [stage.operators for stage in bundle.plan.stages] == [("conv", "relu"), ("back.conv", "back.relu")]
    bundle.save(tmp_path / "both.bundle")
    expected = one_after_the_other(front, back)
    np.testing.assert_allclose(result(bundle), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(result(tmp_path / "both.bundle"), result(bundle))


def test_models_are_connected_by_a_mapping_and_planned_like_one(front: Path, nameless: Path) -> None:
    graph = pipeline.chain({"a": front, "b": nameless}, {"b.image": "a.features"})
    assert [spec.name for spec in (*graph.inputs, *graph.outputs)] == ["image", "b.features"]
    board = Board("two", (Device("one"), Device("two")))
    plan = pipeline.plan(graph, board, stages="models", devices=["one", "two"])
    assert [(stage.device, len(stage.inputs)) for stage in plan.stages] == [("one", 1), ("two", 1)]
    assert pipeline.plan(graph, board, cuts=["a.features"], devices=["one", "two"]) == plan
    bundle = pipeline.build(graph, plan)
    np.testing.assert_allclose(result(bundle), one_after_the_other(front, nameless), rtol=1e-4, atol=1e-5)


def test_a_relay_program_is_built_with_other_files(front: Path, tmp_path: Path) -> None:
    relay = tmp_path / "minus.relay"
    relay.write_text(
        '#[version = "0.0.5"]\ndef @main(%features: Tensor[(1, 8, 8, 8), float32]) { negative(%features) }\n'
    )
    bundle = pipeline.build([front, relay])
    assert len(bundle.plan.stages) == 2
    expected = -by_onnxruntime(front, {"image": IMAGE})["features"]
    np.testing.assert_allclose(result(bundle), expected, rtol=1e-4, atol=1e-5)


def test_graphs_relax_modules_and_files_go_together(front: Path, tmp_path: Path) -> None:
    builder = relax.BlockBuilder()
    features = relax.Var("features", relax.TensorType((1, 8, 8, 8), "float32"))
    with builder.function("main", [features]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.negative(features))
        builder.emit_func_output(out)
    bundle = pipeline.build({"front": pipeline.read(front), "minus": builder.get()})
    expected = -by_onnxruntime(front, {"image": IMAGE})["features"]
    np.testing.assert_allclose(result(bundle), expected, rtol=1e-4, atol=1e-5)


def test_one_model_twice_shares_an_input_and_keeps_both_outputs(front: Path, back: Path, nameless: Path) -> None:
    graph = pipeline.chain({"a": front, "b": back, "c": nameless}, {"c.image": "a.features"})
    assert [spec.name for spec in graph.outputs] == ["result", "c.features"]
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages="models"))) as running:
        results = running.submit(IMAGE).result(60)
    expected = [one_after_the_other(front, back), one_after_the_other(front, nameless)]
    for name, value in zip(("result", "c.features"), expected, strict=True):
        np.testing.assert_allclose(np.asarray(results[name]), value, rtol=1e-4, atol=1e-5)


def test_outputs_in_the_middle_leave_on_request(front: Path, back: Path) -> None:
    graph = pipeline.chain([front, back], outputs=["front.features", "back.result"])
    assert [spec.name for spec in graph.outputs] == ["features", "result"]


def scaling_module(factor: float) -> Any:
    """Return a module whose only operator is a kernel called ``scale``."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            scale = builder.call_te(
                lambda a: te.compute(a.shape, lambda i: a[i] * tirx.const(factor, "float32")),
                x,
                primfunc_name_hint="scale",
            )
            y = builder.emit_output(scale, "y")
        builder.emit_func_output(y)
    return builder.get()


def test_kernels_of_two_models_may_have_one_name() -> None:
    graph = pipeline.chain({"a": scaling_module(2.0), "b": scaling_module(3.0)}, {"b.x": "a.y"})
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages="models"))) as running:
        np.testing.assert_array_equal(running.submit(np.ones(4, np.float32)).result(60), np.full(4, 6, np.float32))


def test_mistakes_are_named(front: Path, back: Path, nameless: Path) -> None:
    with pytest.raises(ModelError, match=r"'nameless' reads nothing .* connect=\{'nameless.image': 'front.features'\}"):
        pipeline.chain([front, nameless])
    with pytest.raises(ModelError, match=r"no model of the chain has an output 'front\.feature'; did you mean"):
        pipeline.chain([front, nameless], {"nameless.image": "front.feature"})
    with pytest.raises(ModelError, match=r"no model of the chain has an input 'nameless\.x'"):
        pipeline.chain([front, nameless], {"nameless.x": "front.features"})
    with pytest.raises(ModelError, match=r"'front.image' takes float32\[1, 4, 8, 8\], but 'nameless.features' is"):
        pipeline.chain([nameless, front], {"front.image": "nameless.features"})
    with pytest.raises(ModelError, match=r"reads 'back\.result' of a later model; order the models"):
        pipeline.chain([front, nameless, back], {"nameless.image": "back.result"})
    with pytest.raises(ModelError, match="at least one model"):
        pipeline.chain([])
    with pytest.raises(ModelError, match="a chain is a list of models"):
        pipeline.chain(str(front))
    with pytest.raises(PlanError, match="stages is 'models', but 'front' is one model"):
        pipeline.plan(pipeline.read(front), stages="models")
    with pytest.raises(ModelError, match="connect is for several models"):
        pipeline.build(pipeline.read(front), connect={"a": "b"})


def test_operators_of_two_models_are_never_fused(front: Path, folder: Path) -> None:
    nodes = [node("Relu", "features", "result", "relu")]
    activation = save(folder / "relu.onnx", nodes, {"features": (1, 8, 8, 8)}, ["result"], {})
    graph = join({"front": pipeline.read(front), "relu": pipeline.read(activation)})
    assert graph.group_ends == graph.model_ends == (2, 3)
