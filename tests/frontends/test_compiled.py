"""Files that vendors' compilers have made are models: a stage on the chip that they are for, and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.core.compiled_file import LOADERS
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import InputError, ModelError, PlanError
from pipeline.prediction.predict import predict
from tests.support.compiled_files import SHAPE, context, hef, rknn
from tests.support.distributions import write_distribution
from tests.support.onnx_models import node, save, weights

# Doubles what it gets; it stands for Rockchip's library, which is on its boards only.
LOADER = """
class Doubler:
    def __init__(self, options, cores): ...
    def open(self, artifact, inputs, outputs):
        assert artifact.read_bytes().startswith(b"RKNN")
        return [spec.name for spec in inputs + outputs]
    def run(self, program, arrays):
        return [2 * array for array in arrays]
    def close(self): ...

class Describer(Doubler):
    @staticmethod
    def describe(path):
        return "ga10b", [("images", (1, 3, 4, 4), "float32")], [("boxes", (1, 5), "float32")]
"""


@pytest.fixture
def loaders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    site = tmp_path / "site"
    site.mkdir()
    names = {"rknn": "chip_loaders:Doubler", "tensorrt": "chip_loaders:Describer"}
    write_distribution(site, "chip_loaders", LOADER, {LOADERS: names})
    monkeypatch.syspath_prepend(site)
    yield
    sys.modules.pop("chip_loaders", None)


def board(**target: Any) -> Board:
    npu = Device("npu", "vendor", target={"kind": "vendor", "loader": "rknn", **target})
    return Board("b", (Device("cpu", cores=(0, 1)), npu))


def test_rknn_says_chip_and_tensors(tmp_path: Path) -> None:
    graph = pipeline.read(rknn(tmp_path / "m.rknn"))
    assert (graph.compiled[0].format, graph.compiled[0].chip) == ("rknn", "rk3588")
    assert (graph.inputs, graph.outputs) == ((TensorSpec("f", SHAPE),), (TensorSpec("g", SHAPE),))
    assert [operator.name for operator in graph.operators] == ["m"]


def test_hef_says_chip_and_streams(tmp_path: Path) -> None:
    graph = pipeline.read(hef(tmp_path / "m.hef"))
    assert (graph.compiled[0].format, graph.compiled[0].chip) == ("hef", "hailo8l")
    assert graph.inputs == (TensorSpec("net/input_layer1", (1, 3, 32, 48), "uint8"),)
    assert graph.outputs == (TensorSpec("net/fc1", (1, 10)),)


def test_what_the_file_does_not_say_is_asked_for(tmp_path: Path) -> None:
    hef(tmp_path / "m.hef", host_part=True)
    with pytest.raises(ModelError, match=r"its inputs and outputs, .* write them into .m\.toml. .*\[compiled\] inputs"):
        pipeline.read(tmp_path / "m.hef")
    (tmp_path / "m.toml").write_text(
        'task = "detect"\n[compiled]\nms = 2.5\ninputs = [{ name = "x", shape = [1, 3, 8, 8], dtype = "uint8" }]\n'
        'outputs = [{ name = "boxes", shape = [1, 80, 5] }, { name = "count", shape = [1], dtype = "int32" }]\n'
    )
    graph = pipeline.read(tmp_path / "m.hef")
    assert graph.outputs == (TensorSpec("boxes", (1, 80, 5)), TensorSpec("count", (1,), "int32"))
    assert graph.card is not None
    assert graph.card.task == "detect"
    plan = pipeline.plan(graph, "raspberry-pi-5-hailo")
    assert plan.stages[0].device == "npu"
    assert plan.stages[0].seconds == pytest.approx(0.0025, rel=0.3)


@pytest.mark.usefixtures("loaders")
def test_a_loader_describes_an_engine(tmp_path: Path) -> None:
    (tmp_path / "m.engine").write_bytes(b"ftrt" + bytes(100))
    graph = pipeline.read(tmp_path / "m.engine")
    assert (graph.compiled[0].chip, graph.inputs[0].name, graph.outputs[0].shape) == ("ga10b", "images", (1, 5))


def test_a_context_in_a_file_becomes_part_of_the_stage(tmp_path: Path) -> None:
    (tmp_path / "m_ctx.bin").write_bytes(b"the context")
    graph = pipeline.read(context(tmp_path / "m_ctx.onnx", embed_mode=0, ep_cache_context="m_ctx.bin"))
    assert (graph.compiled[0].chip, graph.inputs) == ("QNN", (TensorSpec("f", (1, 4), "uint8"),))
    npu = Device("npu", "onnxruntime", target={"kind": "onnxruntime", "providers": ["QNNExecutionProvider"]})
    plan = pipeline.plan(graph, Board("b", (Device("cpu", cores=(0,)), npu)))
    assert [stage.device for stage in plan.stages] == ["npu"]
    pipeline.build(graph, plan).save(tmp_path / "m.bundle")
    (file,) = (tmp_path / "m.bundle").glob("*.onnx")
    attributes = {attribute.name: attribute for attribute in onnx.load(file).graph.node[0].attribute}
    assert (attributes["ep_cache_context"].s, attributes["embed_mode"].i) == (b"the context", 1)


@pytest.mark.parametrize(
    ("name", "problem"),
    [("../m.bin", "does not lie in its folder"), ("none.bin", "is missing")],
)
def test_a_context_elsewhere_is_refused(tmp_path: Path, name: str, problem: str) -> None:
    path = context(tmp_path / "m.onnx", embed_mode=0, ep_cache_context=name)
    with pytest.raises(ModelError, match=problem):
        pipeline.read(path)


@pytest.mark.usefixtures("loaders")
def test_it_streams_in_a_chain(tmp_path: Path) -> None:
    stem = save(tmp_path / "stem.onnx", [node("Relu", "x", "f")], {"x": SHAPE}, ["f"])
    head = save(tmp_path / "head.onnx", [node("Sqrt", "g", "y")], {"g": SHAPE}, ["y"])
    graph = pipeline.chain([stem, rknn(tmp_path / "m.rknn"), head])
    plan = pipeline.plan(graph, board(chip=["RK3588", "rk3588s"]))
    assert [stage.device for stage in plan.stages] == ["cpu", "npu", "cpu"]
    bundle = pipeline.build(graph, plan)
    assert "compiled for rk3588" in bundle.unverified
    bundle.save(tmp_path / "m.bundle")
    frames = [{"x": weights(*SHAPE, seed=seed)} for seed in range(3)]
    with pipeline.load(tmp_path / "m.bundle") as running:
        results = list(running.map(frames))
    for frame, result in zip(frames, results, strict=True):
        np.testing.assert_allclose(result, np.sqrt(2 * np.maximum(frame["x"], 0)), atol=1e-5)


def test_two_files_are_two_stages(tmp_path: Path) -> None:
    files = {name: rknn(tmp_path / f"{name}.rknn") for name in ("first", "second")}
    graph = pipeline.chain(files, {"second.f": "first.g"})
    assert [stage.operators for stage in pipeline.plan(graph, "rk3588").stages] == [("first",) * 2, ("second",) * 2]


def test_a_file_for_another_chip_names_both(tmp_path: Path) -> None:
    graph = pipeline.read(rknn(tmp_path / "m.rknn", "rk3566"))
    with pytest.raises(PlanError, match="it is compiled for rk3566, and npu0 is rk3588 or rk3588s"):
        pipeline.plan(graph, "rk3588")
    with pytest.raises(PlanError, match=r"it is compiled for rk3566, Rockchip's NPU \(.rknn\)"):
        pipeline.plan(graph, "raspberry-pi-5")


def test_a_simulated_device_runs_it_by_name_only(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text("[compiled]\nms = 4\n")
    graph = pipeline.read(rknn(tmp_path / "m.rknn"))
    plan = pipeline.plan(graph, Board("b", (Device("simulated npu", "simulated"),)))
    assert predict(plan).interval_s == pytest.approx(4e-3, rel=0.3)


def test_it_shares_no_stage_of_its_chip(tmp_path: Path) -> None:
    stem = save(tmp_path / "stem.onnx", [node("Relu", "x", "f")], {"x": SHAPE}, ["f"])
    graph = pipeline.chain([stem, rknn(tmp_path / "m.rknn")])
    with pytest.raises(PlanError):
        pipeline.plan(graph, board(), stages=1, devices=["npu"])
    assert len(pipeline.plan(graph, Board("b", (Device("any", "null"),)), stages=1).stages) == 1


@pytest.mark.parametrize("end", [4, 20, 60, 130, -1])
def test_damage_is_named(tmp_path: Path, end: int) -> None:
    for path in (rknn(tmp_path / "m.rknn"), hef(tmp_path / "m.hef")):
        content = path.read_bytes().removesuffix(b"weights")
        path.write_bytes(content[:end])
        with pytest.raises(ModelError, match=r"m\.(rknn|hef)' is damaged"):
            pipeline.read(path)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('inputs = [{ name = "x", shape = [0] }]', "'x' is float32"),
        ('inputs = [{ name = "x", shape = [1], dtype = "real" }]', "'x' is real"),
        ('chips = "rk3588"', "unknown key 'compiled.chips'"),
        ('outputs = [{ name = "x" }]', "missing required field"),
    ],
)
def test_mistakes_of_a_card_are_named(tmp_path: Path, table: str, problem: str) -> None:
    (tmp_path / "m.toml").write_text(f"[compiled]\n{table}\n")
    with pytest.raises(InputError, match=problem):
        pipeline.read(rknn(tmp_path / "m.rknn"))


def test_a_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is compiled at one size"):
        pipeline.read(rknn(tmp_path / "m.rknn"), {"f": SHAPE})


def test_verification_is_refused(tmp_path: Path) -> None:
    graph = pipeline.read(rknn(tmp_path / "m.rknn"))
    with pytest.raises(ModelError, match="no other library runs"):
        pipeline.build(graph, pipeline.plan(graph, "rk3588"), verify=True)
