"""Commands compare a model with its own library: on random input, and on pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

from tests.support.onnx_models import curve, node, save, weights


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return curve(tmp_path / "m.onnx", 0.5)


def test_commands_compare_on_pictures(command: Any, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="the reader of images is not installed")
    nodes = [
        node("Cast", "x", "f", to=1), node("Transpose", "f", "t", perm=[0, 3, 1, 2]),
        node("Conv", "t w", "c"), node("Elu", "c", "y", "curve"),
    ]  # fmt: skip
    path = save(
        tmp_path / "m.onnx", nodes, {"x": (1, 8, 8, 3)}, ["y"], {"w": weights(4, 3, 3, 3) / 300}, dtypes={"x": 3}
    )
    (tmp_path / "photos").mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (10, 12, 3), np.uint8)
        image.fromarray(pixels).save(tmp_path / "photos" / f"{number}.png")
    result = command("inspect", path, "--verify", tmp_path / "photos")
    assert "against ONNX Runtime: largest error" in result.out, result.err
    assert "the worst of 3 frames" in result.out
    result = command("build", path, "-o", tmp_path / "m.bundle", "--verify", tmp_path / "photos", "--json")
    assert json.loads(result.out)["verification"]["frames"] == 3, result.err
    result = command("inspect", path, "--verify", tmp_path / "none")
    assert (result.status, result.err.count("\n")) == (2, 1)


def test_options_of_commands(command: Any, model: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "m.bundle"
    assert "against ONNX Runtime" in command("build", model, "-o", bundle, "--tolerance", "1e-3,3steps").out
    assert (
        "not compared with another library: as it was asked for"
        in command("build", model, "-o", bundle, "--no-verify").out
    )
    result = command("build", model, "-o", bundle, "--no-verify", "--verify")
    assert (result.status, "contradict" in result.err) == (2, True)
    result = command("build", model, "-o", bundle, "--tolerance", "much")
    assert (result.status, "2steps" in result.err) == (2, True)
