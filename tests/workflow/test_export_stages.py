"""Stages of any model become files that are run one after the other, and compute what the model does."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

import pipeline
from pipeline.core.packed_model import ONNX_RUNTIME
from pipeline.errors import ArgumentError, BuildError, InputError, PlanError
from pipeline.workflow.stage_check import StageCheck
from tests.support.onnx_models import KERNEL, node, save, weights
from tests.support.relay_programs import HEADER


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Three convolutions; what the first one makes is read by the last one, too."""
    nodes = [
        node("Conv", "x w", "c", "conv", pads=[1] * 4), node("Relu", "c", "r"),
        node("Conv", "r w", "d", "second", pads=[1] * 4), node("Relu", "d", "s"),
        node("Conv", "s w", "e", "third", pads=[1] * 4), node("Add", "e r", "y"),
    ]  # fmt: skip
    return save(tmp_path / "model.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], KERNEL)


def test_a_manifest_says_what_goes_where(model: Path, tmp_path: Path) -> None:
    graph = pipeline.read(model)
    plan = pipeline.plan(graph, cuts=["r", "s"])
    steps: list[str] = []
    exported = pipeline.export_stages(graph, plan, tmp_path / "parts", progress=steps.append)
    assert exported.verification is not None
    assert (exported.verification.reference, exported.verification.largest_error) == ("ONNX Runtime", 0)
    assert steps == ["writing stage0", "writing stage1", "writing stage2", "comparing"]
    manifest = json.loads((tmp_path / "parts" / "manifest.json").read_text())
    assert (manifest["kind"], manifest["format"], manifest["digest"]) == ("stages", 1, plan.digest)
    assert [stage["file"] for stage in manifest["stages"]] == [f"model-{n}-stage{n}.onnx" for n in range(3)]
    assert {stage["origin"] for stage in manifest["stages"]} == {"extracted"}
    assert [spec["name"] for spec in manifest["stages"][2]["inputs"]] == ["s", "r"]
    assert manifest["stages"][0]["outputs"] == [{"name": "r", "shape": [1, 4, 6, 6], "dtype": "float32"}]
    for stage in manifest["stages"]:
        content = (tmp_path / "parts" / stage["file"]).read_bytes()
        assert stage["sha256"] == hashlib.sha256(content).hexdigest()


def test_only_stages_are_replaced(model: Path, tmp_path: Path) -> None:
    graph = pipeline.read(model)
    folder = tmp_path / "parts"
    pipeline.export_stages(graph, pipeline.plan(graph, stages=3), folder, verify=False)
    pipeline.export_stages(graph, pipeline.plan(graph, stages=1), folder, verify=False)
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "model-0-stage0.onnx"]
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="choose another name"):
        pipeline.export_stages(graph, pipeline.plan(graph, stages=1), folder)
    with pytest.raises(InputError, match="no folder"):
        pipeline.export_stages(graph, pipeline.plan(graph, stages=1), tmp_path / "none" / "parts")
    # Nothing temporary is left.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "parts"]


def test_a_failure_leaves_what_was_there(model: Path, tmp_path: Path) -> None:
    graph = pipeline.read(model)
    plan = pipeline.plan(graph, stages=2)
    pipeline.export_stages(graph, plan, tmp_path / "parts", verify=False)
    before = (tmp_path / "parts" / "manifest.json").read_bytes()
    model.write_bytes(model.read_bytes() + b"\0" * 8)
    with pytest.raises(BuildError, match=r"stage 'stage0': .* not what was read any more"):
        pipeline.export_stages(graph, plan, tmp_path / "parts", verify=False)
    assert (tmp_path / "parts" / "manifest.json").read_bytes() == before


def test_wrong_stages_are_found(model: Path, tmp_path: Path) -> None:
    graph = pipeline.read(model)
    manifest = pipeline.export_stages(graph, pipeline.plan(graph, stages=2), tmp_path / "parts").manifest
    path = tmp_path / "parts" / manifest.stages[-1].file
    stage = onnx.load(path)
    stage.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(KERNEL["w"] * np.float32(1.01), "w"))
    onnx.save(stage, path)
    check = StageCheck.of(graph, ONNX_RUNTIME, verify=True, tolerance=None, seed=0)
    with pytest.raises(BuildError, match="run one after the other, differ from ONNX Runtime: output 'y'"):
        check.run(tmp_path / "parts", manifest)


def test_own_frames_and_no_comparison(model: Path, tmp_path: Path) -> None:
    graph = pipeline.read(model)
    plan = pipeline.plan(graph, stages=2)
    frames = [weights(1, 4, 6, 6, seed=seed) for seed in range(3)]
    exported = pipeline.export_stages(graph, plan, tmp_path / "parts", verify=frames)
    assert exported.verification is not None
    assert exported.verification.frames == 3
    exported = pipeline.export_stages(graph, plan, tmp_path / "parts", verify=False)
    assert (exported.verification, exported.unverified) == (None, "as it was asked for")
    with pytest.raises(InputError, match="not x: float32"):
        pipeline.export_stages(graph, plan, tmp_path / "parts", verify=[weights(2, 2)])


def test_wrong_use(model: Path, tmp_path: Path) -> None:
    graph = pipeline.read(model)
    plan = pipeline.plan(graph, stages=2)
    with pytest.raises(ArgumentError, match="did you mean 'onnx'"):
        pipeline.export_stages(graph, plan, tmp_path / "parts", format="onxn")
    with pytest.raises(BuildError, match="TFLite"):
        pipeline.export_stages(graph, plan, tmp_path / "parts", format="tflite")
    other = pipeline.read(save(tmp_path / "other.onnx", [node("Relu", "x", "y")], {"x": (2,)}, ["y"]))
    with pytest.raises(PlanError, match="another model"):
        pipeline.export_stages(other, plan, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()


def test_models_that_are_connected(tmp_path: Path) -> None:
    """Each stage is cut out of the model that it belongs to, under the names of the chain."""
    paths = []
    for name in ("front", "back"):
        nodes = [
            node("Conv", "x w", "c", "conv", pads=[1] * 4), node("Relu", "c", "r"),
            node("Conv", "r w", "y", "second", pads=[1] * 4),
        ]  # fmt: skip
        paths.append(save(tmp_path / f"{name}.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], KERNEL))
    graph = pipeline.chain({path.stem: path for path in paths}, {"back.x": "front.y"})
    exported = pipeline.export_stages(graph, pipeline.plan(graph, cuts=["r", "y", "back.r"]), tmp_path / "parts")
    assert [stage.origin for stage in exported.manifest.stages] == ["extracted"] * 4
    assert exported.verification is not None
    # The second stage is of both.
    exported = pipeline.export_stages(graph, pipeline.plan(graph, cuts=["r", "back.r"]), tmp_path / "parts")
    assert [stage.origin for stage in exported.manifest.stages] == ["extracted", "written", "extracted"]
    assert exported.verification is not None


def test_relay(tmp_path: Path) -> None:
    """No other library runs such programs: the stages are written, and compared with what TVM computes."""
    program = """(%x: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(8, 3, 3, 3), float32],
                  %v: Tensor[(8, 8, 3, 3), float32]) {
      %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]);
      %1 = nn.conv2d(nn.relu(%0), %v, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]);
      %2 = nn.max_pool2d(nn.relu(%1), pool_size=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0]);
      %3 = nn.conv2d(%2, %v, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3]);
      nn.softmax(nn.batch_flatten(%3))
    }"""
    (tmp_path / "m.relay").write_text(f"{HEADER}def @main{program}")
    graph = pipeline.read(tmp_path / "m.relay", params={"w": weights(8, 3, 3, 3), "v": weights(8, 8, 3, 3)})
    plan = pipeline.plan(graph, stages=3)
    exported = pipeline.export_stages(graph, plan, tmp_path / "parts")
    assert [stage.origin for stage in exported.manifest.stages] == ["written"] * 3
    assert exported.verification is not None
    assert exported.verification.reference == "the unsplit model"
    assert exported.verification.relative < 1e-5


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_pytorch(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    from tests.support.torch_models import ResNet, image, randomise

    torch.manual_seed(0)
    graph = pipeline.read(torch.export.export(randomise(ResNet()), (image(1, 3, 32, 32),)))
    exported = pipeline.export_stages(graph, pipeline.plan(graph, stages=3), tmp_path / "parts")
    assert [stage.origin for stage in exported.manifest.stages] == ["written"] * 3
    assert exported.verification is not None
    assert (exported.verification.reference, exported.verification.relative < 1e-4) == ("PyTorch", True)


def test_tflite_in_both_formats(tmp_path: Path) -> None:
    pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    from tests.frontends.tflite.test_tflite import classifier

    graph = pipeline.read(classifier(tmp_path / "net.tflite"))
    plan = pipeline.plan(graph, stages=3)
    for name, origin, suffix in (("source", "extracted", ".tflite"), ("onnx", "written", ".onnx")):
        exported = pipeline.export_stages(graph, plan, tmp_path / "parts", format=name)
        assert {(stage.origin, Path(stage.file).suffix) for stage in exported.manifest.stages} == {(origin, suffix)}
        assert exported.verification is not None
        assert (exported.verification.reference, exported.verification.relative < 1e-4) == ("LiteRT", True)


def test_what_only_litert_computes_is_no_onnx(tmp_path: Path) -> None:
    pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    from tests.frontends.tflite.test_tflite import Writer

    writer = Writer(4, 8)
    first = writer.add("TANH", [0], writer.tensor("first", (4, 8)))
    ids = writer.constant("ids", np.array([0, 0, 1, 1], np.int32))
    graph = pipeline.read(
        writer.save(tmp_path / "m.tflite", writer.add("SEGMENT_SUM", [first, ids], writer.tensor("y", (2, 8))))
    )
    with pytest.raises(BuildError, match=r"stage 'stage1': .*; format 'source' cuts TFLite files"):
        pipeline.export_stages(graph, pipeline.plan(graph, cuts=["first"]), tmp_path / "parts")
    exported = pipeline.export_stages(graph, pipeline.plan(graph, cuts=["first"]), tmp_path / "parts", format="source")
    assert exported.verification is not None


def test_outputs_of_any_shape(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "r"), node("Softmax", "r", "s"), node("NonZero", "s", "y")]
    path = save(tmp_path / "any.onnx", nodes, {"x": (2, 4)}, ["y"], dtypes={"y": onnx.TensorProto.INT64})
    graph = pipeline.read(path)
    exported = pipeline.export_stages(graph, pipeline.plan(graph, cuts=["s"]), tmp_path / "parts")
    assert exported.verification is not None
    assert [stage.origin for stage in exported.manifest.stages] == ["extracted", "extracted"]
