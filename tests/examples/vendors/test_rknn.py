"""The adapter of Rockchip's NPUs, with a stand-in for RKNN that runs the ONNX model and minds the order of calls."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.errors import PipelineError
from pipeline.executor import devices
from tests.support.onnx_models import by_onnxruntime, save, weights
from tests.support.vendor_examples import NODES, SHAPE, check_frames, installed

LITE = """
from pathlib import Path

import onnxruntime
from calls import CALLS


class RKNNLite:
    NPU_CORE_AUTO, NPU_CORE_0, NPU_CORE_1 = 0, 1, 2

    def __init__(self):
        self.state = "created"

    def load_rknn(self, path):
        assert self.state == "created"
        content = Path(path).read_bytes()
        if not content.startswith(b"RKNN"):
            return -1
        self.session = onnxruntime.InferenceSession(content[4:], providers=["CPUExecutionProvider"])
        self.state = "loaded"
        CALLS.append(("load_rknn", path.rpartition("/")[2]))
        return 0

    def init_runtime(self, core_mask):
        assert self.state == "loaded"
        self.state = "ready"
        CALLS.append(("init_runtime", core_mask))
        return 0

    def inference(self, inputs, data_format):
        assert self.state == "ready"
        assert data_format == ["nchw"] * len(inputs)
        names = [value.name for value in self.session.get_inputs()]
        CALLS.append(("inference", inputs[0].shape))
        return self.session.run(None, dict(zip(names, inputs)))

    def release(self):
        assert self.state != "released"
        self.state = "released"
        CALLS.append(("release",))
"""

TOOLKIT = """
from pathlib import Path


class RKNN:
    def __init__(self):
        self.steps = []

    def config(self, target_platform):
        assert target_platform == "rk3588"
        self.steps.append("config")

    def load_onnx(self, model):
        assert self.steps == ["config"]
        self.steps.append("load")
        self.model = Path(model).read_bytes()
        return 0

    def build(self, do_quantization, dataset):
        assert self.steps == ["config", "load"] and do_quantization is (dataset is not None)
        self.steps.append("build")
        return 0

    def export_rknn(self, path):
        assert self.steps == ["config", "load", "build"]
        Path(path).write_bytes(b"RKNN" + self.model)
        return 0

    def release(self):
        pass
"""

STAND_INS = {"rknnlite/__init__.py": "", "rknnlite/api.py": LITE, "rknn/__init__.py": "", "rknn/api.py": TOOLKIT}


@pytest.fixture
def calls(root: Path, tmp_path: Path) -> Iterator[list[Any]]:
    pytest.importorskip("onnxruntime")
    with installed(root, tmp_path / "site", "rknn", "RknnLoader", STAND_INS) as calls:
        yield calls


def test_it_loads_then_starts_the_runtime_and_releases_at_the_end(calls: list[Any], tmp_path: Path) -> None:
    command = f"{sys.executable} -m soc_pipeline_rknn {{stage}}.onnx {{artifact}} --target rk3588"
    options = {"core_mask": "NPU_CORE_1"}
    check_frames(tmp_path, "rknn", compile=command, artifact="{stage}.rknn", options=options)
    inference = ("inference", (1, 4, 6, 7))
    assert calls == [("load_rknn", "stage.rknn"), ("init_runtime", 2), *[inference] * 3, ("release",)]


def test_replicas_of_a_model_run_on_each_core_of_the_npu(calls: list[Any], tmp_path: Path) -> None:
    command = f"{sys.executable} -m soc_pipeline_rknn {{stage}}.onnx {{artifact}} --target rk3588"
    keys = {"kind": "vendor", "loader": "rknn", "compile": command, "artifact": "{stage}.rknn"}
    cores = [
        Device(f"npu{core}", "vendor", target={**keys, "options": {"core_mask": f"NPU_CORE_{core}"}}) for core in (0, 1)
    ]
    # A CPU of no use.
    board = Board("b", (Device("cpu", flops=1e3, bytes_per_s=1e3), *cores))
    model = save(tmp_path / "m.onnx", NODES, {"x": SHAPE}, ["y"], {"w": weights(4, 4, 3, 3), "v": weights(3, 4, 3, 3)})
    graph = pipeline.read(model)
    plan = pipeline.plan(graph, board)
    assert [stage.replica_devices for stage in plan.stages] == [("npu0", "npu1")]
    pipeline.build(graph, plan, check=False).save(tmp_path / "m.bundle")
    frames = [{"x": weights(*SHAPE, seed=seed)} for seed in range(6)]
    with pipeline.load(tmp_path / "m.bundle") as running:
        results = list(running.map(frames))
    for frame, result in zip(frames, results, strict=True):
        np.testing.assert_allclose(result, by_onnxruntime(model, frame)["y"], atol=1e-4)
    assert sorted(call for call in calls if call[0] == "init_runtime") == [("init_runtime", 1), ("init_runtime", 2)]


def test_what_rknn_refuses_is_an_error_and_is_released(calls: list[Any], tmp_path: Path) -> None:
    # The model itself, since there is no command.
    with pytest.raises(PipelineError, match="load_rknn of RKNN failed with -1"):
        check_frames(tmp_path, "rknn")
    assert calls == [("release",)]


def test_a_missing_package_is_named(root: Path, tmp_path: Path) -> None:
    with installed(root, tmp_path / "site", "rknn", "RknnLoader", {}):
        assert devices.why_absent(Device("npu", "vendor", target={"loader": "rknn"})) == (
            "rknn-toolkit-lite2 is not installed"
        )
