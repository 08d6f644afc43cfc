"""Devices of a plan stand for others where its bundle is loaded."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.cli import main
from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.device_map import map_devices
from pipeline.core.plan.plan import Plan
from pipeline.errors import BoardError, BundleError
from pipeline.executor.bundle import Bundle
from tests.remote.conftest import Child
from tests.support.bundles import rewrite
from tests.support.onnx_models import by_onnxruntime
from tests.support.small_plans import plan, stage

TARGET = {"kind": "llvm", "mtriple": f"{platform.machine()}-linux-gnu"}
BOARD = Board(
    "virtual",
    (Device("here"), Device("board", "remote", address="remote://127.0.0.1:9/cpu", memory="board", target=TARGET)),
    (Link(("host", "board"), 1e8, 1e-3),),
)


@pytest.fixture(scope="module")
def bundle(small_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network whose second stage is for a board that is nowhere."""
    graph = pipeline.read(small_onnx)
    built_bundle = pipeline.build(graph, pipeline.plan(graph, BOARD, devices=["here", "board"]), check=False)
    path = tmp_path_factory.mktemp("virtual") / "small.bundle"
    built_bundle.save(path)
    return path


IMAGE = np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float32)


def result(bundle: Any, **options: Any) -> np.ndarray:
    with pipeline.load(bundle, **options) as running:
        return np.asarray(running.submit(IMAGE).result(60))


def test_a_board_is_found_where_the_caller_says_it_is(bundle: Path, small_onnx: Path, root: Path) -> None:
    expected = by_onnxruntime(small_onnx, {"x": IMAGE})["y"]
    server = Child(root, "--bundles", bundle.parent)
    with contextlib.ExitStack() as stack:
        stack.callback(server.kill)
        for source in (bundle, Bundle.load(bundle)):
            devices = {"board": server.address("cpu")}
            np.testing.assert_allclose(result(source, devices=devices), expected, rtol=1e-4, atol=1e-5)


def test_this_machines_cores_stand_for_a_board(bundle: Path, small_onnx: Path) -> None:
    expected = by_onnxruntime(small_onnx, {"x": IMAGE})["y"]
    np.testing.assert_allclose(result(bundle, devices={"board": "cpu"}), expected, rtol=1e-4, atol=1e-5)


def test_the_command_takes_devices_as_well(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "image.npy", IMAGE)
    words = ["run", str(bundle), "--input", str(tmp_path / "image.npy"), "--output", str(tmp_path / "out.npz")]
    assert main([*words, "--device", "board=cpu"]) == 0
    with np.load(tmp_path / "out.npz") as arrays:
        np.testing.assert_array_equal(arrays["y"].reshape(1, -1), result(bundle, devices={"board": "cpu"}))
    for device, reason in (("board", "must be NAME=DEVICE"), ("bord=cpu", "did you mean 'board'")):
        assert main([*words, "--device", device]) == 2
        assert reason in capsys.readouterr().err


def test_code_for_another_processor_cannot_stand_in(bundle: Path, tmp_path: Path) -> None:
    """Code that is to run here is checked, though the plan has it elsewhere."""
    copy = tmp_path / "foreign.bundle"
    shutil.copytree(bundle, copy)

    def foreign(content: Any) -> None:
        content["stages"][1]["machine"] = "riscv64"

    rewrite(copy, foreign)
    assert Bundle.load(copy).plan.stages[1].device == "board"
    with pytest.raises(BundleError, match="riscv64"):
        pipeline.load(copy, devices={"board": "cpu"})


GPUS = Board(
    "gpus",
    (Device("cpu"), Device("gpu", "cuda", memory="gpu", target={"kind": "cuda"}), Device("none", "null")),
    (Link(("host", "gpu"), 1e10),),
)


@pytest.fixture
def gpus() -> Plan:
    stages = (stage("first", "x", "a"), stage("second", "a", "y", device="gpu"))
    return dataclasses.replace(plan(stage("first", "x", "y"), inputs="x"), board=GPUS, stages=stages)


def test_another_index_keeps_all_else(gpus: Plan) -> None:
    plan_here = map_devices(gpus, {"gpu": "cuda:1"})
    assert plan_here.board.device("gpu") == dataclasses.replace(GPUS.devices[1], index=1)
    assert dataclasses.replace(plan_here, board=GPUS) == gpus


def test_a_description_keeps_the_plans_name(gpus: Plan) -> None:
    gpu = Device("rtx", "cuda", index=2, memory="rtx", flops=1e12)
    plan_here = map_devices(gpus, {"gpu": gpu}).board
    assert plan_here.device("gpu") == dataclasses.replace(gpu, name="gpu")
    assert plan_here.links == ()


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        ({"gpus": "cuda:1"}, r"no device 'gpus'; it has cpu, gpu, none; did you mean 'gpu'"),
        ({"gpu": "cuda:x"}, r"'gpu' cannot be 'cuda:x'; give a kind and an index or an address, such as 'cuda:1'"),
        ({"gpu": "cuda:"}, "'gpu' cannot be 'cuda:'"),
        ({"gpu": "moon:1"}, "'gpu' cannot be 'moon:1'"),
        ({"gpu": "remote"}, "'remote' is not an address: write it like remote://"),
        ({"gpu": "remote://127.0.0.1/cpu"}, "is not a whole address"),
        ({"gpu": "cpu"}, "its stages were built for 'cuda', not for 'cpu'; build the bundle again"),
        ({"gpu": "remote://127.0.0.1:9123/cpu"}, "built for 'cuda', not for 'cpu'"),
        ({"none": "cpu:0"}, "built for 'null', not for 'cpu'"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(gpus: Plan, devices: dict[str, str], reason: str) -> None:
    with pytest.raises(BoardError, match=reason):
        map_devices(gpus, devices)
