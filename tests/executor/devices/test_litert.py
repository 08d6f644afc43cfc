"""Stages by LiteRT: of TFLite models, beside stages of other runtimes; and what a delegate leaves to the CPU."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.errors import BuildError
from pipeline.executor import devices
from pipeline.executor.devices.litert import find_undelegated
from tests.frontends.tflite.test_tflite import classifier

BOARD = Board("b", (Device("cpu", cores=(0, 1), runtimes=("tvm", "litert", "onnxruntime")),))


@pytest.mark.parametrize("pair", list(product(["cpu", "cpu/litert", "cpu/onnxruntime"], repeat=2)))
def test_two_stages_give_the_answer_of_the_model(pair: tuple[str, str], tmp_path: Path) -> None:
    graph = pipeline.read(classifier(tmp_path / "net.tflite"))
    plan = pipeline.plan(graph, BOARD, devices=pair)
    # This compares the unsplit model with LiteRT, and the stages with that.
    bundle = pipeline.build(graph, plan, verify=True)
    bundle.save(tmp_path / "net.bundle")
    frames = [np.random.default_rng(seed).random((1, 16, 16, 3), np.float32) for seed in range(3)]
    with pipeline.load(tmp_path / "net.bundle") as running, pipeline.load(bundle) as before:
        for loaded, built in zip(running.map(frames), before.map(frames), strict=True):
            np.testing.assert_array_equal(loaded, built)
    suffixes = {"cpu": ".so", "cpu/litert": ".tflite", "cpu/onnxruntime": ".onnx"}
    files = {file.name for file in (tmp_path / "net.bundle").iterdir()}
    assert {f"stage{number}{suffixes[device]}" for number, device in enumerate(pair)} <= files


def test_a_model_of_another_format_is_refused(digits_onnx: Path) -> None:
    graph = pipeline.read(digits_onnx)
    with pytest.raises(BuildError, match=r"'stage1'.*is no part of a TFLite model: its model is not read from"):
        pipeline.build(graph, pipeline.plan(graph, BOARD, devices=["cpu", "cpu/litert"]), check=False)


def test_a_delegate_that_cannot_be_loaded_is_named() -> None:
    device = Device("npu", "litert", target={"kind": "litert", "delegate": "libnothing.so.1"})
    assert "the delegate 'libnothing.so.1' cannot be loaded" in devices.why_absent(device)


def operator(index: int, name: str, inputs: list[int], outputs: list[int]) -> dict[str, Any]:
    return {"index": index, "op_name": name, "inputs": inputs, "outputs": outputs}


def test_what_no_delegate_computes() -> None:
    chain = [operator(0, "CONV_2D", [0, 9], [1]), operator(1, "TANH", [1], [2]), operator(2, "CONV_2D", [2, 9], [3])]
    assert find_undelegated(chain) == chain
    first, last = operator(3, "DELEGATE", [0, 9], [1]), operator(4, "DELEGATE", [2, 9], [3])
    assert find_undelegated([*chain, first, last]) == [chain[1]]
    assert find_undelegated([*chain, operator(3, "DELEGATE", [0, 9], [3])]) == []
