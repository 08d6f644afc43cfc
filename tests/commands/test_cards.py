"""Model cards in commands: shown by inspect, kept by build, quantize and split, and overridden by options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.card_file import CARD_KEY
from pipeline.core.model_card import ModelCard, Preparation
from pipeline.executor.bundle import Bundle
from tests.support import cards

pytest.importorskip("onnx")

Run = Callable[..., Any]

YOLO = {"task": "classify", "stride": "1", "names": "['cat', 'dog', 'cow']"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return cards.onnx_model(tmp_path / "m.onnx", YOLO, classes=3)


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.txt"
    path.write_text("one\ntwo\nthree\n", encoding="utf-8")
    return path


def rows(text: str) -> dict[str, list[str]]:
    """Return the table of a card by its first column."""
    cells = [[cell.strip() for cell in line.replace("│", "┃").split("┃")[1:-1]] for line in text.splitlines()]
    return {row[0]: row[1:] for row in cells if len(row) == 3}


def test_inspect_shows_what_a_model_says(command: Run, model: Path) -> None:
    table = rows(command("inspect", model).out)
    assert table["task"] == ["classify", "Ultralytics' metadata"]
    assert table["labels"] == ["3: cat, dog, cow", "Ultralytics' metadata"]
    assert table["preparation.resize"] == ["crop", "Ultralytics' metadata"]
    assert table["decoder"][0] == "classes"
    assert table["decoder"][1].startswith("guess: ")


def test_inspect_says_what_is_missing(command: Run, tmp_path: Path) -> None:
    result = command("inspect", cards.onnx_model(tmp_path / "m.onnx", classes=7))
    assert "Missing: labels; classes are numbers: give --labels FILE" in result.out
    assert "Missing: preparation; pictures are stretched" in result.out


def test_inspect_lists_the_decoders_to_choose_from(command: Run, tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    # Cells of strides 8, 16 and 32: nine classes, eight with an angle, or one with four points.
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("image", (1, 3, 64, 64)), ("boxes", (1, 13, 84)))
    ]
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["features"]),
        helper.make_node("MatMul", ["features", "weights"], ["flat"]),
        helper.make_node("Reshape", ["flat", "shape"], ["boxes"]),
    ]
    constants = [
        helper.make_tensor("shape", TensorProto.INT64, [3], [1, 13, 84]),
        helper.make_tensor("weights", TensorProto.FLOAT, [3, 1092], np.ones(3276)),
    ]
    graph = helper.make_graph(nodes, "cells", ends[:1], ends[1:], constants)
    path = tmp_path / "cells.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    facts = json.loads(command("inspect", path, "--json").out)
    assert {"yolov8", "yolov8-obb", "yolov8-pose"} <= {entry["decoder"] for entry in facts["candidates"]}
    lines = [line for line in command("inspect", path).out.splitlines() if line.startswith("Candidate: ")]
    assert len(lines) == len(facts["candidates"])
    assert any(line.startswith("Candidate: --decode yolov8-pose (its output [1, 13, 84] has") for line in lines)
    # Its task leaves one of them.
    (tmp_path / "cells.toml").write_text("task = 'obb'", encoding="utf-8")
    facts = json.loads(command("inspect", path, "--json").out)
    assert (facts["card"]["decoder"], facts["candidates"]) == ("yolov8-obb", [])


def test_inspect_as_json(command: Run, model: Path) -> None:
    facts = json.loads(command("inspect", model, "--json").out)
    assert facts["card"]["labels"] == ["cat", "dog", "cow"]
    assert facts["card"]["origins"]["labels"] == "Ultralytics' metadata"
    assert (facts["missing"], facts["problem"], facts["candidates"]) == ([], "", [])


def test_options_win_field_by_field(command: Run, model: Path, labels: Path, tmp_path: Path) -> None:
    card = tmp_path / "other.toml"
    card.write_text("labels = ['a', 'b', 'c']\n[preparation]\nfill = 3\nresize = 'stretch'", encoding="utf-8")
    result = command("inspect", model, "--card", card, "--labels", labels, "--resize", "letterbox", "--decode", "none")
    table = rows(result.out)
    assert table["labels"] == ["3: one, two, three", f"--labels {labels}"]
    assert table["preparation.resize"] == ["letterbox", "options"]
    assert table["preparation.fill"] == ["3", "other.toml"]
    assert table["preparation.sampling"] == ["bilinear", "Ultralytics' metadata"]
    assert table["decoder"] == ["none", "--decode"]


def test_a_bundle_keeps_the_card(command: Run, model: Path, labels: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "m.bundle"
    result = command("build", model, "-o", bundle, "--labels", labels, "--no-verify", "--mean", "0.5")
    assert result.status == 0, result.err
    card = Bundle.load(bundle).card
    assert card is not None
    assert (card.labels, card.decoder) == (("one", "two", "three"), "classes")
    assert card.preparation == Preparation(resize="crop", mean=(0.5,), scale=1, sampling="bilinear", rounding="down")
    again = tmp_path / "again.bundle"
    Bundle.load(bundle).save(again)
    assert Bundle.load(again).card == card
    shown = command("inspect", bundle)
    assert rows(shown.out)["labels"] == ["3: one, two, three", f"--labels {labels}"]
    assert "bundle of 1 stages" in shown.out
    facts = json.loads(command("inspect", bundle, "--json", "--labels", labels).out)
    assert facts["card"]["labels"] == ["one", "two", "three"]
    assert facts["stages"][0]["name"]
    result = command("inspect", bundle, "--verify")
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "is a bundle" in result.err


def test_a_bundle_of_an_earlier_version_has_none(command: Run, model: Path, tmp_path: Path) -> None:
    graph = pipeline.read(model)
    bundle = pipeline.build(graph, verify=False, card=ModelCard(labels=("x", "y", "z")))
    assert bundle.card == ModelCard(labels=("x", "y", "z"))
    bundle.card = None
    bundle.save(tmp_path / "m.bundle")
    assert '"card"' not in (tmp_path / "m.bundle" / "manifest.json").read_text(encoding="utf-8").replace(
        '"card": null', ""
    )
    assert Bundle.load(tmp_path / "m.bundle").card is None
    facts = json.loads(command("inspect", tmp_path / "m.bundle", "--json").out)
    assert facts["card"] == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--labels", "missing.txt"], "no labels in 'missing.txt'"),
        (["--labels", "{two}"], "labels"),
        (["--card", "missing.toml"], "no card in 'missing.toml'"),
        (["--card", "{two}"], "is no TOML"),
        (["--decode", "yolo"], "there is no decoder 'yolo'"),
        (["--decode", "classes:topp=3"], "has no parameter 'topp'"),
        (["--decode", "yolox"], "yolox"),
        (["--resize", "letterbix"], "resize is 'letterbix'; it must be"),
        (["--fill", "300"], "fill is 300"),
        (["--fill", "-1"], "--fill"),
        (["--scale", "2"], "scale is 2"),
        (["--margin", "left"], "margin is 'left'"),
        (["--sampling", "nearest"], "sampling is 'nearest'"),
        (["--std", "0"], "std is [0.0]; it must be above 0"),
        (["--mean", "127.5"], "give scale 255"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_built(
    command: Run, model: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    two = tmp_path / "two.txt"
    two.write_text("one\ntwo\n", encoding="utf-8")
    output = tmp_path / "m.bundle"
    result = command("build", model, "-o", output, *(text.format(two=two) for text in options))
    assert (result.status, result.err.count("\n"), result.out) == (2, 1, "")
    assert words in result.err
    assert not output.exists()


def test_quantize_keeps_the_card_and_prepares_by_it(command: Run, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    image = pytest.importorskip("PIL.Image")
    path = cards.onnx_model(tmp_path / "m.onnx", {**YOLO, "author": "somebody"}, classes=3)
    (tmp_path / "m.toml").write_text("labels = ['x', 'y', 'z']", encoding="utf-8")
    pixels = np.random.default_rng(0).integers(0, 256, (10, 12, 3), np.uint8)
    image.fromarray(pixels).save(tmp_path / "photo.png")
    output = tmp_path / "q.onnx"
    result = command("quantize", path, "--calibrate", tmp_path / "photo.png", "-o", output, "--channels", "bgr")
    assert result.status == 0, result.err
    graph = pipeline.read(output)
    assert graph.card is not None
    assert (graph.card.task, graph.card.labels) == ("classify", ("x", "y", "z"))
    assert graph.card.preparation is not None
    assert (graph.card.preparation.resize, graph.card.preparation.channels) == ("crop", "bgr")
    import onnx

    properties = {entry.key: entry.value for entry in onnx.load(output).metadata_props}
    assert properties.keys() == {*YOLO, "author", CARD_KEY}
    assert "decoder" not in json.loads(properties[CARD_KEY])


def test_the_files_of_stages_have_the_card_in_their_manifest(command: Run, model: Path, tmp_path: Path) -> None:
    result = command("split", model, "--stages", "2", "-o", tmp_path / "parts", "--no-verify")
    assert result.status == 0, result.err
    manifest = json.loads((tmp_path / "parts" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["card"]["labels"] == ["cat", "dog", "cow"]
    # A second call knows the folder as its own.
    assert command("split", model, "--stages", "2", "-o", tmp_path / "parts", "--no-verify").status == 0


def test_convert_keeps_the_card(command: Run, model: Path, tmp_path: Path) -> None:
    assert command("convert", model, "-o", tmp_path / "m.relax").status == 0
    before, after = pipeline.read(model).card, pipeline.read(tmp_path / "m.relax").card
    assert before is not None
    assert after is not None
    assert (after.task, after.labels, after.preparation) == (before.task, before.labels, before.preparation)
