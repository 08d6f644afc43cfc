from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import InputError
from pipeline.io.results import Classes, Detections, Mask, Result, Text
from pipeline.io.sinks import registry
from pipeline.io.sinks.annotation import Annotator, make_annotator
from pipeline.io.sinks.base import SinkOptions
from pipeline.io.sinks.json_lines import JsonLines
from pipeline.io.sinks.overlay import draw
from pipeline.io.uri import parse_uri
from pipeline.picture.geometry import Geometry, fit
from tests.support import media


def annotator(shape: tuple[int, ...], options: str = "show=boxes", geometry: Geometry | None = None) -> Annotator:
    """Return the annotator of a sink for a model with one output."""
    return make_annotator(parse_uri(f"a.mp4?{options}", ()).options, SinkOptions([TensorSpec("y", shape)], geometry))


def test_a_detector_s_boxes_come_back_to_the_picture(tmp_path: Path) -> None:
    rows = np.array([[[32, 48, 64, 80, 0.9, 1], [0, 0, 5, 5, 0.4, 0]]], np.float32)
    (tmp_path / "names").write_text("cat\ndog\n")
    fitted = annotator((1, 2, 6), f"show=boxes&labels={tmp_path / 'names'}", fit("letterbox", (128, 64), (64, 64)))
    boxes = fitted.result(media.frame_result(rows, np.zeros((64, 128, 3), np.uint8)))
    assert isinstance(boxes, Detections)
    assert boxes.boxes.tolist() == [[64, 64, 128, 64]]
    assert boxes.names == ["dog"]
    every = annotator((1, 2, 6), "show=boxes&least=0").result(media.frame_result(rows))
    assert every is not None
    assert every.summary() == "class 1 0.90 [32 48 64 80], class 0 0.40 [0 0 5 5]"


@pytest.mark.parametrize("shape", [(1, 84, 8400), (1, 25200, 85), (8400, 5), (0, 7), ()])
def test_a_raw_detector_s_output_is_refused(shape: tuple[int, ...]) -> None:
    message = rf"rows of left, top, right, bottom, score, class, such as .*'y' {re.escape(str(list(shape)))}; leave out"
    with pytest.raises(InputError, match=message):
        annotator(shape)
    with pytest.raises(InputError, match="rows of left"):
        annotator((1, 100, 6)).result(media.frame_result(np.zeros(shape, np.float32)))


@pytest.mark.parametrize("shape", [(1, 84, 8400), (1, 21, 64, 64), (2, 10)])
def test_what_is_no_classifier_s_output_has_no_label(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=rf"one axis, such as .*'y' is {re.escape(str(list(shape)))}"):
        annotator(shape, "show=label")
    with pytest.raises(InputError, match="no classifier's"):
        annotator((1, 10), "show=label").result(media.frame_result(np.zeros(shape, np.float32)))


def test_there_is_a_label_for_each_class(tmp_path: Path) -> None:
    for count in (2, 1000, 1002):
        (tmp_path / "many").write_text("a\n" * count)
        with pytest.raises(InputError, match=rf"{count} labels for the 1001 classes of 'y'"):
            annotator((1, 1001), f"show=label&labels={tmp_path / 'many'}")
    pytest.importorskip("av", reason="PyAV is not installed")
    (tmp_path / "labels.txt").write_text("a\nb\n\n")
    text = f"{tmp_path / 'out.mp4'}?show=label&labels={tmp_path / 'labels.txt'}"
    registry.open_sink(text, [TensorSpec("y", (1, 2))]).finish_early()
    with pytest.raises(InputError, match="2 labels"), registry.open_sinks([text], [TensorSpec("y", (1, 1001))]):
        pytest.fail("opened")


def test_scores_and_boxes_of_integers_are_shown_as_the_numbers_they_stand_for(tmp_path: Path) -> None:
    scores = Quantization("y", (1 / 256,), (-128,))
    result = media.frame_result(np.array([[-128, 100, 0]], np.int8), quantization=[scores])
    (tmp_path / "names").write_text("cat\nmacaw\ndog")
    best = annotator((1, 3), f"show=label&labels={tmp_path / 'names'}").result(result)
    assert best is not None
    assert best.summary() == "macaw 0.89"
    columns = Quantization("y", (2.0, 2.0, 2.0, 2.0, 1 / 128, 1.0), (0,) * 6, axis=1)
    rows = media.frame_result(np.array([[16, 24, 32, 40, 64, 1], [0, 0, 9, 9, 20, 0]], np.int8), quantization=[columns])
    boxes = annotator((2, 6)).result(rows)
    assert boxes is not None
    assert boxes.facts() == [{"label": "class 1", "class": 1, "score": 0.5, "box": [32, 48, 64, 80]}]
    with JsonLines(tmp_path / "out.jsonl") as lines:
        lines.add(result)
    assert json.loads((tmp_path / "out.jsonl").read_text())["outputs"] == {"y": [[0.0, 228 / 256, 0.5]]}


def test_boxes_are_drawn_also_at_the_edge() -> None:
    pytest.importorskip("PIL")
    picture = np.zeros((100, 100, 3), np.uint8)
    boxes = np.array([[20, 30, 60, 80], [90, -5, 40, 300], [-50, -50, -10, -10]], np.float32)
    canvas = draw(picture, Detections(boxes, np.ones(3, np.float32), np.zeros(3, np.int64), ["dog"]))
    assert (canvas.shape, canvas.dtype) == (picture.shape, np.uint8)
    assert canvas[50, 20].any()
    assert canvas[80, 40].any()
    assert not canvas[50, 30].any()
    assert not picture.any()


def test_a_turned_box_stands_on_its_corner() -> None:
    pytest.importorskip("PIL")
    box, angle = np.array([[30, 30, 70, 70]], np.float32), np.array([np.pi / 4], np.float32)
    diamond = Detections(box, np.ones(1, np.float32), np.zeros(1, np.int64), angles=angle)
    canvas = draw(np.zeros((100, 100, 3), np.uint8), diamond)
    half = 20 * 2**0.5
    assert canvas[50, round(50 + half)].any()
    assert not canvas[50, 70].any()
    assert canvas[round(50 + half / 2), round(50 + half / 2)].any()


def test_masks_points_and_bones_are_drawn() -> None:
    pytest.importorskip("PIL")
    picture = np.full((100, 100, 3), 100, np.uint8)
    mask = np.zeros((1, 100, 100), bool)
    mask[0, 60:80, 60:80] = True
    points = np.zeros((1, 17, 3), np.float32)
    points[0, 5], points[0, 7] = (10, 50, 0.9), (50, 50, 0.9)
    person = Detections(
        np.array([[2, 40, 98, 98]], np.float32), np.ones(1, np.float32), np.zeros(1, np.int64), ["person"], points, mask
    )
    canvas = draw(picture, person)
    assert canvas[70, 70].tolist() == [50, 150, 177]
    # Between shoulder and elbow, and not between points that nobody sees.
    assert (canvas[50, 30] != 100).any()
    assert (canvas[90, 30] == 100).all()


def test_a_map_of_classes_is_half_transparent_and_has_a_legend() -> None:
    pytest.importorskip("PIL")
    picture = np.full((120, 160, 3), 100, np.uint8)
    classes = np.zeros((120, 160), np.uint8)
    classes[60:] = 1
    canvas = draw(picture, Mask(classes, labels=["background", "cat"]))
    assert (canvas[100, 100] != 100).all()
    assert (canvas[50, 150] == 100).all()
    assert (canvas[:20, :60] != 100).any()
    # A class of its own, and no background.
    assert (draw(picture, Mask(classes, labels=["road", "cat"]))[50, 150] != 100).any()


@pytest.mark.parametrize("result", [Classes(np.array([1]), np.array([0.5]), ["a", "b"]), Text("exit", 0.9)])
def test_classes_and_text_are_lines(result: Result) -> None:
    pytest.importorskip("PIL")
    canvas = draw(np.full((120, 160, 3), 90, np.uint8), result)
    assert (canvas[:30, :60] != 90).any()
    assert (canvas[60:] == 90).all()


def test_lines_of_json_are_there_at_once_and_stay(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with pytest.raises(ZeroDivisionError), JsonLines(path) as lines:
        lines.add(media.frame_result(np.array([[1.5, np.nan]], np.float32), stamp=2_500_000_000))
        line: dict[str, Any] = json.loads(path.read_text())
        raise ZeroDivisionError
    assert line == {"frame": "a", "number": 0, "timestamp": 2.5, "latency_s": 0.0, "outputs": {"y": [[1.5, None]]}}
    assert path.read_text().count("\n") == 1


def test_all_of_it_is_imported_without_the_extras() -> None:
    """And nothing of them before they are used."""
    code = "import sys\nfor name in ('av', 'rosbags', 'PIL'): sys.modules[name] = None\n"
    code += "import pipeline.io.sinks.registry, pipeline.io.stream\nfrom pipeline.io.sources import registry\n"
    code += "from pipeline.io.sources.base import SourceOptions\n"
    code += "from pipeline.errors import MissingExtra\n"
    for text, package in (("video", "av"), ("bag", "rosbags")):
        code += f"try: registry.open_source({text!r} + ':' + {__file__!r}, SourceOptions())\n"
        code += f"except MissingExtra as error: assert '{package}<' in str(error), error\n"
        code += "else: raise AssertionError\n"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.parametrize(
    ("options", "size", "names"),
    [("", 10, {"result", "outputs"}), ("", 5000, {"result"}), ("?outputs=all", 5000, {"result", "outputs"})],
)
def test_a_line_of_json_has_the_result_and_no_large_outputs(
    tmp_path: Path, options: str, size: int, names: set[str]
) -> None:
    path = tmp_path / "out.jsonl"
    dogs = Classes(np.array([1]), np.array([0.5]), ["cat", "dog"])
    with registry.open_sinks([f"{path}{options}"], [TensorSpec("y", (size,))]) as sink:
        sink.add(replace(media.frame_result(np.zeros(size)), result=dogs))
    line = json.loads(path.read_text())
    assert line["result"] == [{"label": "dog", "class": 1, "score": 0.5}]
    assert line.keys() & {"result", "outputs"} == names
    with pytest.raises(InputError, match="must be 'all'"):
        registry.open_sink(f"{tmp_path / 'b.jsonl'}?outputs=some", ())


def test_a_label_at_the_right_edge_can_be_read() -> None:
    pytest.importorskip("PIL")
    box, one = np.array([[90, 40, 99, 60]], np.float32), np.ones(1, np.float32)
    canvas = draw(np.full((100, 100, 3), 90, np.uint8), Detections(box, one, np.zeros(1, np.int64), ["elephant"]))
    # It begins left of its box, and ends inside of the picture.
    assert (canvas[25:39, 60] != 90).any()
    assert (canvas[25:39, 20] == 90).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30, -1e30])
def test_nonsense_of_a_network_is_drawn_at_once(value: float) -> None:
    pytest.importorskip("PIL")
    box, one = np.array([[10, 20, value, 80]], np.float32), np.ones(1, np.float32)
    points = np.full((1, 17, 3), value, np.float32)
    points[..., 2] = 0.9
    for angles in (None, one):
        nonsense = Detections(box, one, np.zeros(1, np.int64), ["dog"], points, angles=angles)
        assert draw(np.zeros((100, 100, 3), np.uint8), nonsense).shape == (100, 100, 3)


def test_show_label_means_the_best_of_a_decoder_s_classes() -> None:
    classes = Classes(np.array([1, 0]), np.array([0.75, 0.25]), ["cat", "dog"])
    result = replace(media.frame_result(np.zeros(2)), result=classes)
    options = SinkOptions([TensorSpec("y", (2,))], decoded=True)
    for show, text in (("label", "dog 0.75"), (None, "dog 0.75, cat 0.25")):
        drawn = Annotator(show, sink_options=options).result(result)
        assert drawn is not None
        assert drawn.summary() == text
