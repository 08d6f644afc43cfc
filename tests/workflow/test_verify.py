"""A model is compared with its own library, on given frames, while it is built, and down to the operator at fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the reader of ONNX files is not installed")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

import onnx

import pipeline
from pipeline.errors import BuildError, InputError, ModelError
from pipeline.split.symbolic_model import with_source
from tests.support.onnx_models import curve, node, save

pytestmark = pytest.mark.thorough

DIFFERS = "'m' differs from ONNX Runtime: output 'y' by .* the first operator that differs is 'middle'"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return curve(tmp_path / "m.onnx", 0.5)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return curve(tmp_path / "other.onnx", 0.8)


def test_the_first_operator_that_differs_is_named(model: Path, other: Path) -> None:
    with pytest.raises(BuildError, match=DIFFERS):
        pipeline.verify(pipeline.read(model), other)


def test_also_beside_operators_that_the_library_computes(tmp_path: Path) -> None:
    def save_model(path: Path, alpha: float) -> Path:
        nodes = [
            node("Binarizer", "x", "b", "island", domain="ai.onnx.ml"), node("Sub", "x b", "s"),
            node("Elu", "s", "e", "middle", alpha=alpha), node("Binarizer", "e", "n", "other", domain="ai.onnx.ml"),
            node("Add", "e n", "y"),
        ]  # fmt: skip
        return save(path, nodes, {"x": (4, 4)}, ["y"])

    graph = pipeline.read(save_model(tmp_path / "m.onnx", 0.5))
    assert len(graph.islands) == 2
    with pytest.raises(BuildError, match=DIFFERS):
        pipeline.verify(graph, save_model(tmp_path / "o.onnx", 0.8))


def test_a_build_refuses_a_graph_that_was_read_wrongly(model: Path, other: Path) -> None:
    graph = with_source(pipeline.read(model), other)
    plan = pipeline.plan(graph, stages=2)
    with pytest.raises(BuildError, match=DIFFERS):
        pipeline.build(graph, plan)
    bundle = pipeline.build(graph, plan, tolerance=0.9)
    assert bundle.verification.relative > 0.001
    bundle = pipeline.build(graph, plan, verify=False)
    assert (bundle.verification, bundle.unverified) == (None, "as it was asked for")


def test_a_file_of_a_newer_version_of_the_format(model: Path) -> None:
    """Writers are ahead of ONNX Runtime, which refuses such files."""
    proto = onnx.load(model)
    proto.ir_version = onnx.IR_VERSION + 1
    onnx.save(proto, model, save_as_external_data=True, location="m.data", size_threshold=0)
    graph = pipeline.read(model)
    assert pipeline.verify(graph).reference == "ONNX Runtime"
    assert pipeline.verify(graph, onnx.load(model)).reference == "ONNX Runtime"


def test_a_build_says_what_it_was_compared_with(model: Path) -> None:
    graph = pipeline.read(model)
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=2))
    assert (bundle.verification.reference, bundle.unverified) == ("ONNX Runtime", "")
    assert bundle.verification.relative < 1e-5


def test_a_file_that_has_changed_is_not_compared(model: Path) -> None:
    graph = pipeline.read(model)
    curve(model, 0.8)
    model.touch()
    bundle = pipeline.build(graph)
    assert bundle.verification is None
    assert bundle.unverified == f"{str(model)!r} is not what was read any more"


def test_a_build_for_another_machine_compares_the_model_on_this_one(model: Path, other: Path) -> None:
    board = pipeline.Board("arm", (pipeline.Device("cpu", target={"kind": "llvm", "mtriple": "aarch64-linux-gnu"}),))
    graph = pipeline.read(model)
    bundle = pipeline.build(graph, pipeline.plan(graph, board, stages=2))
    assert (bundle.parity, bundle.verification.reference) == (None, "ONNX Runtime")
    wrong = with_source(graph, other)
    with pytest.raises(BuildError, match=DIFFERS):
        pipeline.build(wrong, pipeline.plan(wrong, board, stages=2))


def test_a_chain_is_compared_with_the_libraries_of_its_models(tmp_path: Path) -> None:
    head = save(tmp_path / "head.onnx", [node("Elu", "z", "s", "head", alpha=0.5)], {"z": (1, 4, 6, 6)}, ["s"])
    other_head = save(tmp_path / "o.onnx", [node("Elu", "z", "s", "head", alpha=0.8)], {"z": (1, 4, 6, 6)}, ["s"])
    backbone = curve(tmp_path / "m.onnx", 0.5)
    connect = {"head.z": "m.y"}
    assert pipeline.build([backbone, head], connect=connect).verification.reference == "ONNX Runtime"
    wrong_head = with_source(pipeline.read(head), other_head)
    with pytest.raises(BuildError, match=r"output 's' by .* the first operator that differs is 'head'"):
        pipeline.build({"m": backbone, "head": wrong_head}, connect=connect)


def test_random_numbers_are_not_compared(tmp_path: Path) -> None:
    nodes = [node("Elu", "x", "z"), node("RandomNormalLike", "x", "r", "dice"), node("Add", "x r", "y")]
    path = save(tmp_path / "m.onnx", nodes, {"x": (4, 4)}, ["y", "z"])
    result = pipeline.verify(pipeline.read(path))
    assert result.uncompared == ("y",)
    assert result.relative < 1e-5
    other = save(tmp_path / "o.onnx", [node("Elu", "x", "z", alpha=0.5), *nodes[1:]], {"x": (4, 4)}, ["y", "z"])
    with pytest.raises(BuildError, match="output 'z' by"):
        pipeline.verify(pipeline.read(path), other)


def test_given_frames_are_compared_and_the_worst_one_is_described(model: Path, other: Path) -> None:
    graph, (spec,) = pipeline.read(model), pipeline.read(model).inputs
    positive, negative = np.ones(spec.shape, np.float32), -np.ones(spec.shape, np.float32)
    zeros = np.zeros(spec.shape, np.float32)
    result = pipeline.verify(graph, frames=[positive, {"x": negative}, zeros])
    assert (result.frames, result.reference) == (3, "ONNX Runtime")
    with pytest.raises(BuildError, match="output 'y' of frame 1 by"):
        pipeline.verify(graph, other, frames=[zeros, negative, zeros])
    # What is wrong with negative numbers alone is not seen where there are none.
    bundle = pipeline.build(with_source(graph, other), verify=[zeros])
    assert bundle.verification.relative == 0


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([], "there is no frame"),
        ([np.zeros((1, 4, 6, 6))], r"input 'x' of a frame is float64\[1, 4, 6, 6\], not x: float32"),
        ([{"z": np.zeros(1)}], "a frame has no input 'x'; it has z"),
    ],
)
def test_frames_that_do_not_fit(model: Path, frames: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        pipeline.verify(pipeline.read(model), frames=frames)


def test_what_no_library_runs(tmp_path: Path) -> None:
    (tmp_path / "m.relay").write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32]) { negative(%x) }')
    graph = pipeline.read(tmp_path / "m.relay")
    with pytest.raises(ModelError, match="cannot be verified: no other library runs"):
        pipeline.verify(graph)
    assert pipeline.build(graph).unverified == "no other library runs it"
    with pytest.raises(ModelError, match="cannot be verified: no other library runs"):
        pipeline.build(graph, verify=True)


def test_a_tflite_model_down_to_the_operator(tmp_path: Path) -> None:
    pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    from tests.frontends.tflite.test_tflite import Writer, conv

    def save_model(path: Path, kind: str) -> Path:
        writer = Writer(1, 8, 8, 3)
        first = conv(writer, 0, "stem", (1, 8, 8, 4), (3, 4))
        middle = writer.add(kind, [first], writer.tensor("middle", (1, 8, 8, 4)))
        return writer.save(path, conv(writer, middle, "y", (1, 8, 8, 5), (4, 5)))

    graph = pipeline.read(save_model(tmp_path / "m.tflite", "TANH"))
    assert pipeline.build(graph).verification.reference == "LiteRT"
    other = save_model(tmp_path / "o.tflite", "LOGISTIC")
    with pytest.raises(BuildError, match=r"differs from LiteRT: output 'y' .* operator that differs is 'middle'"):
        pipeline.verify(graph, other)


def test_a_pytorch_program_down_to_the_operator() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def program(negative_slope: float) -> Any:
        torch.manual_seed(0)
        layers = torch.nn.Linear(6, 8), torch.nn.LeakyReLU(negative_slope), torch.nn.Linear(8, 3), torch.nn.Tanh()
        return torch.export.export(torch.nn.Sequential(*layers).eval(), (torch.zeros(2, 6),))

    graph = pipeline.read(program(0.1))
    assert pipeline.build(graph).verification.reference == "PyTorch"
    with pytest.raises(BuildError, match=r"differs from PyTorch: .* operator that differs is '1' \(leakyrelu\)"):
        pipeline.verify(graph, program(0.4))
