"""Ways to be wrong between a camera and its boxes: each ends in one line with the remedy."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import detectors

pytest.importorskip("onnx")
Image = pytest.importorskip("PIL.Image")

Ways = dict[str, tuple[list[str], str]]

WAYS: Ways = {
    # The model.
    "no model": (["modle.onnx", "--source", "scene.png"], "no model at 'modle.onnx'; did you mean 'model.onnx'"),
    "no bundle": (["missing.bundle", "--source", "scene.png"], "does not exist"),
    "no model inside": (["text.onnx", "--source", "scene.png"], "is not a valid ONNX model"),
    "a photo as model": (["scene.png", "--source", "scene.png"], "is not a bundle"),
    "a folder as model": (["folder", "--source", "scene.png"], "is not a bundle: it has no manifest.json"),
    "options of a model for a bundle": (["folder", "--source", "scene.png", "--stages", "2"], "leave out --stages"),
    "too many stages": (["model.onnx", "--source", "scene.png", "--stages", "99"], "stages"),
    "an unknown board": (["model.onnx", "--source", "scene.png", "--board", "hots"], "unknown board 'hots'"),
    "a cut that is not there": (["model.onnx", "--source", "scene.png", "--cut", "nothing"], "'nothing'"),
    "no plan": (["model.onnx", "--source", "scene.png", "--plan", "none.json"], "none.json"),
    "plan and stages": (["model.onnx", "--source", "scene.png", "--plan", "p", "--stages", "2"], "leave out --stages"),
    "extents of no input": (["model.onnx", "--source", "scene.png", "--shape", "z=1,3,8,8"], "z"),
    "a signature of a model": (["model.onnx", "--source", "scene.png", "--require-signature", "k"], "is for a bundle"),
    # What it gives.
    "an unknown decoder": (["model.onnx", "--source", "scene.png", "--decode", "yolo"], "did you mean"),
    "an unknown parameter": (["model.onnx", "--source", "scene.png", "--decode", "yolox:stride=8"], "'strides'"),
    "a parameter of another type": (["model.onnx", "--source", "scene.png", "--decode", "yolox:score=high"], "yolox"),
    "a decoder of other outputs": (["model.onnx", "--source", "scene.png", "--decode", "yunet"], "yunet"),
    "no labels": (["model.onnx", "--source", "scene.png", "--labels", "none.txt"], "no labels in 'none.txt'"),
    "empty labels": (["model.onnx", "--source", "scene.png", "--labels", "empty.txt"], "one name per line"),
    "too many labels": (
        ["model.onnx", "--source", "scene.png", "--decode", "yolox", "--labels", "labels.txt"],
        "there are 3 labels for the 1 classes of 'y'",
    ),
    "no card": (["model.onnx", "--source", "scene.png", "--card", "none.toml"], "no card in 'none.toml'"),
    "a card with a mistake": (["model.onnx", "--source", "scene.png", "--card", "card.toml"], "unknown key 'decodr'"),
    "another way to resize": (["model.onnx", "--source", "scene.png", "--resize", "fit"], "'letterbox'"),
    "another scale": (["model.onnx", "--source", "scene.png", "--scale", "2"], "it must be 1 or 255"),
    "a mean of other pixels": (["model.onnx", "--source", "scene.png", "--mean", "123,117,104"], "divide both by 255"),
    # Where pictures come from.
    "no photo": (["model.onnx", "--source", "none.png"], "no source at 'none.png'"),
    "no photo inside": (["model.onnx", "--source", "text.png", "--decode", "yolox"], "is not a readable image"),
    "a folder without photos": (["model.onnx", "--source", "folder"], "folder 'folder' has no inputs"),
    "two sources into one video": (["model.onnx", *["--source", "scene.png"] * 2, "--sink", "out.mp4"], "{stream}"),
    "an array of another shape": (["model.onnx", "--input", "array.npy", "--decode", "yolox"], "32, 32] expected"),
    "speed of a photo": (["model.onnx", "--source", "scene.png", "--reconnect", "3"], "is not live"),
    # Where results go.
    "no folder for the photo": (["model.onnx", "--source", "scene.png", "--sink", "none/out.png"], "is no folder"),
    "an unknown sink": (["model.onnx", "--source", "scene.png", "--sink", "out.gif"], "cannot write 'out.gif'"),
    "an unknown option of a sink": (["model.onnx", "--source", "scene.png", "--sink", "o.png?draw=1"], "'draw'"),
    "another show": (["model.onnx", "--source", "scene.png", "--sink", "o.png?show=all"], "'label' or 'boxes'"),
    "boxes of no detector": (["wide.onnx", "--source", "scene.png", "--sink", "o.png?show=boxes"], "show=boxes"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.support.onnx_models import node, save

    path = tmp_path_factory.mktemp("mistakes")
    detectors.save_detector(path / "model.onnx")
    shape = {"shape": np.array([1, 2, 3, 8, 64])}
    save(path / "wide.onnx", [node("Reshape", "x shape", "y")], {"x": (1, 3, 32, 32)}, ["y"], shape)
    Image.fromarray(detectors.scene((1, 2))).save(path / "scene.png")
    np.save(path / "array.npy", np.zeros((1, 3, 8, 8), np.float32))
    (path / "folder").mkdir()
    (path / "card.toml").write_text("decodr = 'yolox'\n")
    (path / "labels.txt").write_text("one\ntwo\nthree\n")
    for name in ("text.onnx", "text.png"):
        (path / name).write_text("hello\n")
    (path / "empty.txt").write_text("\n")
    return path


@pytest.mark.parametrize("way", WAYS)
def test_a_mistake_is_one_line(
    command: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    arguments, message = WAYS[way]
    result = command("run", *arguments)
    lines = [line for line in result.err.splitlines() if not line.startswith("built ")]
    assert result.status in (1, 2), result
    assert result.out == ""
    assert len(lines) == 1, result.err
    assert lines[0].startswith("soc-pipeline: ")
    assert message in lines[0]
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        (["--source", "none.png"], "no source at"),
        (["--source", "ros:"], "names nothing to read"),
        (["--source", "scene.png", "--source", "none.png"], "no source at"),
        (["--input", "none.npy"], "no input at"),
        (["--source", "scene.png", "--sink", "ros:"], "names nothing to write"),
        (["--source", "scene.png", "--sink", "out.gif"], "cannot write"),
    ],
)
def test_ends_are_checked_before_a_model_is_built(
    command: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch, ends: list[str], message: str
) -> None:
    monkeypatch.chdir(folder)
    # Which is no model, as reading it would say.
    result = command("run", "text.onnx", *ends)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert message in result.err


def test_a_cache_that_cannot_be_written(
    command: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("SOC_PIPELINE_CACHE", str(tmp_path / "file"))
    result = command("run", folder / "model.onnx", "--source", folder / "scene.png")
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert "set SOC_PIPELINE_CACHE to a folder that you may write to" in result.err


def test_a_damaged_bundle_of_the_cache_is_built_again(
    command: Callable[..., Any], folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SOC_PIPELINE_CACHE", str(tmp_path))
    line = ("run", folder / "model.onnx", "--source", folder / "scene.png", "--decode", "yolox")
    expected = command(*line).out.splitlines()[0]
    (parameters,) = tmp_path.rglob("stage0.parameters")
    os.truncate(parameters, 10)
    result = command(*line)
    assert (result.status, result.out.splitlines()[0]) == (0, expected)
    assert result.err.startswith("built model.onnx; ")
    assert command(*line).err == ""
