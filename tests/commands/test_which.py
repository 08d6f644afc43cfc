"""``which``: the boards that a model keeps up on, and how that is known."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.onnx_models import node, save, weights
from tests.support.rknn_compiler import install_rknn


@pytest.fixture
def mobilenet(digits_onnx: Path, tmp_path: Path) -> Path:
    """A small network with the name of a published one."""
    return Path(shutil.copy(digits_onnx, tmp_path / "mobilenet-v1.onnx"))


def test_boards_are_compared(command: Any, mobilenet: Path) -> None:
    names = "pynq-z2,rk3588,raspberry-pi-5-edge-tpu"
    result = command("which", mobilenet, "--fps", 3000, "--boards", names, "--task", "classify", "--json")
    assert (result.status, result.err) == (0, "")
    verdicts = {verdict["board"]: verdict for verdict in json.loads(result.out)}
    assert list(verdicts)[-1] == "pynq-z2"
    assert verdicts["pynq-z2"]["keeps_up"] == "no"
    for verdict in verdicts.values():
        assert verdict["basis"] == "estimated"
        assert verdict["rate_range"]["low"] < verdict["frames_per_s"]
        assert verdict["watts"] > 0
    figures = verdicts["raspberry-pi-5-edge-tpu"]["published"]
    assert {figure["model"] for figure in figures} == {"mobilenet_v1"}
    assert all(figure["source"].startswith("https://") for figure in figures)


def test_networks_of_the_task_are_named(command: Any, digits_onnx: Path) -> None:
    result = command("which", digits_onnx, "--fps", 60, "--task", "detect", "--boards", "rk3588")
    assert result.status == 0
    assert "rk3588, published frames/s: yolo" in result.out
    assert "estimated by" in result.out


def test_a_board_that_cannot_says_why(command: Any, tmp_path: Path) -> None:
    (tmp_path / "m.hef").write_bytes(b"\x01HEF\0\0\0\x01\0\0\0\x04" + bytes(16) + b"\x0a\x02\x08\x03")
    (tmp_path / "m.toml").write_text(
        '[compiled]\nms = 5\ninputs = [{ name = "x", shape = [1, 8] }]\noutputs = [{ name = "y", shape = [1, 2] }]\n'
    )
    names = "raspberry-pi-5,raspberry-pi-5-hailo"
    result = command("which", tmp_path / "m.hef", "--fps", 30, "--boards", names, "--json")
    with_chip, without = json.loads(result.out)
    assert (with_chip["board"], with_chip["basis"], with_chip["runtimes"]) == (
        "raspberry-pi-5-hailo", "measured", ["hailo"],
    )  # fmt: skip
    assert "compiled for hailo8l" in without["reason"]


def test_cycles_of_a_compiler_are_told_from_estimates(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_rknn(tmp_path, monkeypatch)
    nodes = [node("Conv", "x w", "a", "first", pads=[1, 1, 1, 1]), node("MaxPool", "a", "y", kernel_shape=[3, 3])]
    save(tmp_path / "m.onnx", nodes, {"x": (1, 64, 64, 64)}, ["y"], {"w": weights(64, 64, 3, 3)})
    result = command("which", tmp_path / "m.onnx", "--boards", "rk3588,raspberry-pi-5", "--json")
    assert (result.status, result.err) == (0, "")
    bases = {verdict["board"]: (verdict["basis"], verdict["runtimes"]) for verdict in json.loads(result.out)}
    assert bases == {"rk3588": ("compiled", ["rknn"]), "raspberry-pi-5": ("estimated", ["tvm"])}
    assert "Predicted (compiled): " in command("plan", tmp_path / "m.onnx", "--board", "rk3588").out


def test_an_unknown_board_is_named(command: Any, digits_onnx: Path) -> None:
    result = command("which", digits_onnx, "--boards", "rk3589")
    assert (result.status, "rk3588" in result.err) == (2, True)
