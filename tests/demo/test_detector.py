"""The demo's detector: its file, its boxes on scenes, and the demo's command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import boards
import pipeline
from pipeline import cli
from pipeline.demo import detector
from pipeline.executor.bundle import Bundle
from pipeline.io.results import Detections
from pipeline.measure.profile import profile
from tests.support.sampling import QUICK

pytest.importorskip("onnx")
pytest.importorskip("sklearn")
image = pytest.importorskip("PIL.Image")


def test_the_shipped_file_is_small_and_has_its_card() -> None:
    assert detector.FILE.stat().st_size < 1e6
    card = pipeline.read(detector.FILE).card
    assert card is not None
    assert (card.task, card.decoder, card.labels) == ("detect", "yolox", tuple("0123456789"))


def test_nine_of_ten_digits_get_a_box_and_hardly_a_box_is_wrong(detector_bundle: Bundle, tmp_path: Path) -> None:
    result = detector.recognise(detector_bundle, tmp_path / "scene.png")
    assert result.digits > 50
    assert result.recognised >= 0.9 * result.digits
    assert result.wrong <= 0.1 * result.digits
    with image.open(tmp_path / "scene.png") as picture:
        assert picture.size == (2 * detector.WIDTH, 2 * detector.HEIGHT)


def test_scenes_come_once_or_at_a_pace_without_end() -> None:
    with detector.SceneSource() as source:
        frames = list(source)
        assert not source.live
    assert len(frames) == len(source.scenes) == detector.SCENES
    assert all(frame.inputs is scene.picture for frame, scene in zip(frames, source.scenes, strict=True))
    with detector.SceneSource(1000.0) as source:
        numbers = [frame.name for frame, _ in zip(source, range(detector.SCENES + 2), strict=False)]
        assert source.live
    assert numbers[-1] == f"{detector.SCENES + 1:06d}"


def test_matches_are_of_one_class_and_overlap() -> None:
    boxes = np.array([[0, 0, 10, 10], [20, 20, 30, 30], [40, 0, 50, 10], [60, 0, 70, 10]], np.float32)
    references = np.array([[0, 0, 10, 9], [20, 20, 30, 30], [45, 0, 55, 10]], np.float32)
    left = Detections(boxes, np.ones(4), np.array([1, 2, 3, 4]))
    right = Detections(references, np.ones(3), np.array([1, 5, 3]))
    assert detector.match(left, right).tolist() == [True, False, False, False]
    assert detector.match(left, right, 0.3).tolist() == [True, False, True, False]
    none = Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, int))
    assert detector.match(left, none).tolist() == [False] * 4
    assert detector.match(none, left).tolist() == []


@pytest.fixture(scope="module")
def quick_times() -> None:
    """Put times into the session's cache that the demo would measure for a quarter of a minute."""
    profile(pipeline.read(detector.FILE), boards.get("host"), sampling=QUICK)


@pytest.mark.usefixtures("quick_times")
def test_the_demo_draws_boxes_first_and_says_what_is_fastest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "pictures"
    assert cli.main(["demo", "--frames", "8", "--output", str(folder)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Boxes: {folder / 'scene.png'} (")
    for expected in (
        "unsplit, 1 core",
        "2 stages",
        "Fastest on this machine: ",
        f"Timeline: {folder / 'timeline.png'}",
    ):
        assert expected in text
    assert sorted(path.name for path in folder.iterdir()) == ["scene.png", "timeline.png"]


@pytest.mark.usefixtures("quick_times")
def test_the_view_shows_the_scenes(root: Path) -> None:
    pytest.importorskip("tornado")
    line = [sys.executable, "-m", "pipeline.cli", "demo", "--view", "0", "--frames", "5"]
    result = subprocess.run(line, cwd=root, capture_output=True, text=True, check=False, timeout=100)
    assert (result.returncode, result.stdout) == (0, "")
    assert "view: http://127.0.0.1:" in result.stderr


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert cli.main(["demo", "--output", str(tmp_path / "file" / "pictures")]) in (1, 2)
    error = capsys.readouterr().err
    assert "cannot write to the folder" in error
    assert error.count("\n") == 1


@pytest.mark.usefixtures("quick_times")
def test_bench_measures_decoding_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", str(detector.FILE), "--stages", "1", "--frames", "4", "--rounds", "1"]) == 0
    assert ", decoded" in capsys.readouterr().out
