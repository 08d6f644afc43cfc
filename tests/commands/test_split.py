"""``soc-pipeline split`` writes stages for other tool chains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def test_a_plan_becomes_files(command: Any, digits_onnx: Path, tmp_path: Path) -> None:
    plan, parts = tmp_path / "plan.json", tmp_path / "parts"
    assert command("plan", digits_onnx, "--stages", "2", "-o", plan).status == 0
    result = command("split", digits_onnx, "--plan", plan, "-o", parts)
    assert result.status == 0, result.err
    assert "digits-1-stage1.onnx" in result.out
    assert "against ONNX Runtime: largest error 0" in result.out
    assert {path.name for path in parts.iterdir()} == {"manifest.json", "digits-0-stage0.onnx", "digits-1-stage1.onnx"}
    # Again, and otherwise: what it made itself is replaced.
    result = command("split", digits_onnx, "--stages", "1", "--no-verify", "--json", "-o", parts)
    assert json.loads(result.out)["unverified"] == "as it was asked for"
    assert [stage["origin"] for stage in json.loads(result.out)["manifest"]["stages"]] == ["extracted"]
    assert {path.name for path in parts.iterdir()} == {"manifest.json", "digits-0-stage0.onnx"}
    # The folder is no model.
    result = command("inspect", parts)
    assert (result.status, "a folder of stages" in result.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--format", "tflite"), (1, "stage 'stage0'")),
        (("--format", "caffe"), (2, "invalid choice")),
        (("--verify", "--no-verify"), (2, "contradict")),
        (("--plan", "none.json"), (2, "make one with 'soc-pipeline plan'")),
    ],
)
def test_mistakes(
    command: Any, digits_onnx: Path, tmp_path: Path, arguments: tuple[str, ...], expected: tuple[int, str]
) -> None:
    status, words = expected
    result = command("split", digits_onnx, "-o", tmp_path / "parts", *arguments)
    assert (result.status, words in result.err, "Traceback" in result.err) == (status, True, False), result.err
    assert not (tmp_path / "parts").exists()


def test_a_folder_of_something_else_is_kept(command: Any, digits_onnx: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    result = command("split", digits_onnx, "-o", tmp_path / "photos")
    assert (result.status, result.err.count("\n"), "choose another name" in result.err) == (2, 1, True)
