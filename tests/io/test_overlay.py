from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.io.geometry import fit
from pipeline.io.json_lines import JsonLines
from pipeline.io.overlay import BestLabel, Box, Boxes, Overlay, draw
from tests.io import media


def test_a_detector_s_boxes_come_back_to_the_picture() -> None:
    rows = np.array([[[32, 48, 64, 80, 0.9, 1], [0, 0, 5, 5, 0.4, 0]]], np.float32)
    place = fit("letterbox", (128, 64), (64, 64))
    (box,) = Boxes(place, ["cat", "dog"])(media.delivered(rows)).boxes
    assert box == Box(64, 64, 128, 128, "dog 0.90", 1)
    assert [box.label for box in Boxes(least=0.0)(media.delivered(rows)).boxes] == ["class 1 0.90", "class 0 0.40"]


def test_a_classifier_s_best_class() -> None:
    assert BestLabel(["a", "b"])(media.delivered(np.array([[0.25, 0.75]]))).lines == ["b 0.75"]
    assert BestLabel()(media.delivered(np.array([3.0]))).lines == ["class 0 3.00"]


def test_boxes_and_lines_are_drawn_also_at_the_edge() -> None:
    pytest.importorskip("PIL")
    picture = np.zeros((100, 100, 3), np.uint8)
    overlay = Overlay([Box(20, 30, 60, 80, "dog"), Box(90, -5, 40, 300), Box(-50, -50, -10, -10, "away")], ["42 fps"])
    drawn = draw(picture, overlay)
    assert (drawn.shape, drawn.dtype) == (picture.shape, np.uint8)
    assert drawn[50, 20].any()
    assert drawn[80, 40].any()
    assert not drawn[50, 30].any()
    assert not picture.any()


def test_lines_of_json_are_there_at_once_and_stay(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with pytest.raises(ZeroDivisionError), JsonLines(path) as lines:
        lines.add(media.delivered(np.array([[1.5, np.nan]], np.float32), stamp=2_500_000_000))
        found: dict[str, Any] = json.loads(path.read_text())
        raise ZeroDivisionError
    assert found == {"frame": "a", "number": 0, "timestamp": 2.5, "latency_s": 0.0, "outputs": {"y": [[1.5, None]]}}
    assert path.read_text().count("\n") == 1


def test_all_of_it_is_imported_without_the_extras() -> None:
    """And nothing of them before they are used."""
    code = "import sys\nfor name in ('av', 'rosbags', 'PIL'): sys.modules[name] = None\n"
    code += "import pipeline.io.sources, pipeline.io.sinks, pipeline.io.streaming\n"
    code += "from pipeline.errors import MissingExtra\n"
    for text in ("video", "bag"):
        code += f"try: pipeline.io.sources.source({text!r} + ':' + {__file__!r}, pipeline.io.sources.Options())\n"
        code += f"except MissingExtra as error: assert 'soc-pipeline[{text}]' in str(error), error\n"
        code += "else: raise AssertionError\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
