from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import TensorSpec
from pipeline.core.tensor_quantization import Quantization
from pipeline.errors import InputError
from pipeline.io.sinks import registry
from pipeline.io.sinks.json_lines import JsonLines
from pipeline.io.sinks.overlay import BestLabel, Box, Boxes, Overlay, draw
from pipeline.picture.geometry import fit
from tests.support import media


def test_a_detector_s_boxes_come_back_to_the_picture() -> None:
    rows = np.array([[[32, 48, 64, 80, 0.9, 1], [0, 0, 5, 5, 0.4, 0]]], np.float32)
    geometry = fit("letterbox", (128, 64), (64, 64))
    (box,) = Boxes(geometry, ["cat", "dog"])(media.frame_result(rows)).boxes
    assert box == Box(64, 64, 128, 128, "dog 0.90", 1)
    assert [box.label for box in Boxes(minimum_score=0.0)(media.frame_result(rows)).boxes] == [
        "class 1 0.90",
        "class 0 0.40",
    ]


@pytest.mark.parametrize("shape", [(1, 84, 8400), (1, 25200, 85), (8400, 5), (0, 7), ()])
def test_a_raw_detector_s_output_is_refused(shape: tuple[int, ...]) -> None:
    message = rf"rows of left, top, right, bottom, score, class, such as .*'raw' is {re.escape(str(list(shape)))}; give"
    with pytest.raises(InputError, match=message):
        Boxes().check(TensorSpec("raw", shape))
    with pytest.raises(InputError, match="rows of left"):
        Boxes()(media.frame_result(np.zeros(shape, np.float32)))


@pytest.mark.parametrize("shape", [(1, 84, 8400), (1, 21, 64, 64), (2, 10)])
def test_what_is_no_classifier_s_output_has_no_label(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=rf"one axis, such as .*'map' is {re.escape(str(list(shape)))}"):
        BestLabel().check(TensorSpec("map", shape))
    with pytest.raises(InputError, match="no classifier's"):
        BestLabel()(media.frame_result(np.zeros(shape, np.float32)))


def test_there_is_a_label_for_each_class(tmp_path: Path) -> None:
    BestLabel(["a", "b"]).check(TensorSpec("y", (1, 2)))
    for count in (2, 1000, 1002):
        with pytest.raises(InputError, match=rf"{count} labels for the 1001 classes of 'y'"):
            BestLabel(["a"] * count).check(TensorSpec("y", (1, 1001)))
    pytest.importorskip("av", reason="PyAV is not installed")
    (tmp_path / "labels.txt").write_text("a\nb\n\n")
    text = f"{tmp_path / 'out.mp4'}?show=label&labels={tmp_path / 'labels.txt'}"
    registry.open_sink(text, [TensorSpec("y", (1, 2))]).finish_early()
    with pytest.raises(InputError, match="2 labels"), registry.open_sinks([text], [TensorSpec("y", (1, 1001))]):
        pytest.fail("opened")


def test_scores_and_boxes_of_integers_are_shown_as_the_numbers_they_stand_for(tmp_path: Path) -> None:
    scores = Quantization("y", (1 / 256,), (-128,))
    result = media.frame_result(np.array([[-128, 100, 0]], np.int8), quantization=[scores])
    assert BestLabel(["cat", "macaw", "dog"])(result).lines == ["macaw 0.89"]
    columns = Quantization("y", (2.0, 2.0, 2.0, 2.0, 1 / 128, 1.0), (0,) * 6, axis=1)
    rows = media.frame_result(np.array([[16, 24, 32, 40, 64, 1], [0, 0, 9, 9, 20, 0]], np.int8), quantization=[columns])
    assert Boxes()(rows).boxes == [Box(32, 48, 64, 80, "class 1 0.50", 1)]
    with JsonLines(tmp_path / "out.jsonl") as lines:
        lines.add(result)
    assert json.loads((tmp_path / "out.jsonl").read_text())["outputs"] == {"y": [[0.0, 228 / 256, 0.5]]}


def test_a_classifier_s_best_class() -> None:
    assert BestLabel(["a", "b"])(media.frame_result(np.array([[0.25, 0.75]]))).lines == ["b 0.75"]
    assert BestLabel()(media.frame_result(np.array([3.0]))).lines == ["class 0 3.00"]


def test_boxes_and_lines_are_drawn_also_at_the_edge() -> None:
    pytest.importorskip("PIL")
    picture = np.zeros((100, 100, 3), np.uint8)
    overlay = Overlay([Box(20, 30, 60, 80, "dog"), Box(90, -5, 40, 300), Box(-50, -50, -10, -10, "away")], ["42 fps"])
    canvas = draw(picture, overlay)
    assert (canvas.shape, canvas.dtype) == (picture.shape, np.uint8)
    assert canvas[50, 20].any()
    assert canvas[80, 40].any()
    assert not canvas[50, 30].any()
    assert not picture.any()


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
