"""Commands name the operators that the model's own runtime computes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.onnx_models import node, save


@pytest.fixture
def model(tmp_path: Path) -> Path:
    nodes = [node("Relu", "x", "r"), node("Binarizer", "r", "c", "curve", domain="ai.onnx.ml"), node("Exp", "c", "y")]
    return save(tmp_path / "m.onnx", nodes, {"x": (4, 4)}, ["y"])


@pytest.mark.parametrize("name", ["inspect", "plan"])
def test_they_are_named_with_the_reason(command: Any, model: Path, name: str) -> None:
    out = command(name, model).out
    assert "ONNX Runtime computes Binarizer (curve): not supported" in out
    share = re.search(r"Together they take (\d+)% of the time", out)
    assert share is not None
    assert 0 < int(share[1]) < 100


def test_they_are_in_the_json(command: Any, model: Path) -> None:
    (island,) = json.loads(command("inspect", model, "--json").out)["islands"]
    assert island == {
        "tensor": "c", "operators": ["Binarizer (curve)"], "reason": "not supported", "keeps_state": False
    }  # fmt: skip


def test_they_are_refused_on_request(command: Any, model: Path) -> None:
    result = command("inspect", model, "--no-fallback")
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "not supported: ai.onnx.ml.Binarizer (node 'curve')" in result.err


def test_a_build_names_their_share(command: Any, model: Path, tmp_path: Path) -> None:
    result = command("build", model, "-o", tmp_path / "m.bundle")
    assert result.status == 0
    assert "onnxruntime (curve)" in result.out


def test_an_open_batch_is_noted_beside_the_results(command: Any, tmp_path: Path) -> None:
    path = save(tmp_path / "net.onnx", [node("Relu", "x", "y")], {"x": ("batch", 3)}, ["y"])
    result = command("inspect", path, "--json")
    assert result.err.endswith("leaves the batch open, which becomes 1; another one is given by --shape batch=8\n")
    assert json.loads(result.out)
    result = command("inspect", path, "--shape", "batch=8")
    assert "note" not in result.err
    assert "[8, 3]" in result.out
