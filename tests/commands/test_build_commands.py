"""``build --plan`` runs commands of vendors' tools that the user's board has, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.core.plan.plan import Plan

BOARD = """
[[devices]]
name = "cpu"

[[devices]]
name = "npu"
kind = "vendor"
flops = 1e13
bytes_per_s = 1e11
target = {{ kind = "vendor", loader = "nobody", compile = "{command}" }}
"""


@pytest.fixture
def files(command: Any, digits_onnx: Path, tmp_path: Path) -> Path:
    """A folder with a board and a plan for it."""
    (tmp_path / "mine.toml").write_text(BOARD.format(command="cp {stage}.onnx {artifact}"))
    line = ["plan", digits_onnx, "--board", tmp_path / "mine.toml", "--stages", 1, "-o", tmp_path / "plan.json"]
    result = command(*line)
    assert result.status == 0
    assert Plan.load(tmp_path / "plan.json").stages[0].device == "npu"
    return tmp_path


def build(command: Any, model: Path, folder: Path, *options: object) -> Any:
    return command("build", model, "--plan", folder / "plan.json", "--no-verify", "-o", folder / "m.bundle", *options)


def test_a_command_that_only_the_plan_has_is_refused(command: Any, digits_onnx: Path, files: Path) -> None:
    result = build(command, digits_onnx, files)
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "plan.json' has a command of its own for 'vendor', compile = 'cp {stage}.onnx {artifact}'" in result.err
    assert "--allow-commands" in result.err
    assert not (files / "m.bundle").exists()


def test_a_command_of_the_named_board_is_run(command: Any, digits_onnx: Path, files: Path) -> None:
    assert build(command, digits_onnx, files, "--board", files / "mine.toml").status == 0
    assert (files / "m.bundle" / "stage0.artifact").is_file()


def test_another_command_than_that_of_the_named_board_is_refused(command: Any, digits_onnx: Path, files: Path) -> None:
    (files / "other.toml").write_text(BOARD.format(command="cp -v {stage}.onnx {artifact}"))
    assert "a command of its own" in build(command, digits_onnx, files, "--board", files / "other.toml").err


def test_a_command_in_the_options_of_a_stage_is_refused(command: Any, digits_onnx: Path, files: Path) -> None:
    plan = Plan.load(files / "plan.json")
    plan.with_options(plan.stages[0].name, target={"supported": "touch somewhere"}).save(files / "plan.json")
    result = build(command, digits_onnx, files, "--board", files / "mine.toml")
    assert "supported = 'touch somewhere'" in result.err


def test_commands_can_be_allowed(command: Any, digits_onnx: Path, files: Path) -> None:
    assert build(command, digits_onnx, files, "--allow-commands").status == 0
