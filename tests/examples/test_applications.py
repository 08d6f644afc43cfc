"""The applications of docs/applications.md, with models whose answers are known in place of their files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.app.app_file import read_app
from pipeline.app.app_frame import AppFrame
from pipeline.core.model_card import ModelCard
from pipeline.core.plan.plan import TensorSpec
from pipeline.executor.bundle import Bundle
from pipeline.io.sinks.base import Callback
from pipeline.io.source_frame import SECOND, SourceFrame
from pipeline.io.sources.base import FrameSource
from tests.support import app_models
from tests.support.media import identity

FOLDER = Path(__file__).parents[2] / "examples" / "applications"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that files are written to."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(name: str, sources: dict[str, Any], bundles: dict[str, Bundle], **options: Any) -> list[AppFrame]:
    """Run an application; return its frames, none of which has failed."""
    ended = list[AppFrame]()
    with pipeline.load_app(
        FOLDER / name, sources=sources, bundles=bundles, on_frame=ended.append, **options
    ) as running:
        running.run()
    assert [frame.error for frame in ended] == [None] * len(ended)
    return ended


def lines(path: Path) -> list[Any]:
    """Return the JSON lines of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def detector(label: str) -> Bundle:
    """Return a bundle that finds squares, as things of a label."""
    card = ModelCard(task="detect", decoder="rows", labels=(label,), parameters={"score": 0.3})
    return app_models.function_bundle(app_models.find_squares, TensorSpec("rows", (1, app_models.MOST, 6)), card)


def walk(*cells: tuple[int, int]) -> app_models.Scenes:
    """Return a source with one square that goes from cell to cell, by steps of half a cell."""
    pictures = []
    for column, row in cells:
        pictures.append(app_models.scene([(column, row, 5)]))
    return app_models.Scenes(pictures)


def scores_of(pairs: dict[float, int], labels: tuple[str, ...]) -> Bundle:
    """Return a classifier of samples: the class of their first one."""

    def classify(samples: np.ndarray) -> np.ndarray:
        scores = np.zeros((1, len(labels)), np.float32)
        scores[0, pairs[round(float(samples.reshape(-1)[0]), 1)]] = 1
        return scores

    card = ModelCard(task="classify", decoder="classes", labels=labels, parameters={"activation": "none", "top": 1})
    output = TensorSpec("scores", (1, len(labels)))
    bundle = identity((1, 512), "float32").with_stage(classify, inputs=["y"], outputs=[output], fresh=True)
    bundle.card = card
    return bundle


class Samples(FrameSource):
    """Windows that are all of one value each."""

    owns_memory = True

    def __init__(self, *values: float) -> None:
        self._values = values

    def __iter__(self) -> Any:
        for number, value in enumerate(self._values):
            yield SourceFrame(str(number), np.full(512, value, np.float32), number * SECOND)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_files_are_right_and_short(path: Path) -> None:
    app = read_app(path)
    assert app.name
    assert len(path.read_text().splitlines()) <= 50


def test_pictures_in_the_docs_show_the_files_of_now(root: Path, folder: Path) -> None:
    subprocess.run(
        [sys.executable, root / "tools" / "draw_applications.py", folder],
        check=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    drawn = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.svg")}
    kept = {path.name: path.read_text(encoding="utf-8") for path in (root / "docs" / "applications").glob("*.svg")}
    assert drawn == kept, "run: python tools/draw_applications.py"


def test_people_are_counted_and_recorded_as_they_cross(folder: Path) -> None:
    # Squares overlap from step to step, so that a tracker follows; three of eight cells are the line's 60 %.
    pictures = []
    for top in range(0, 56, 4):
        picture = np.zeros((64, 64, 3), np.uint8)
        picture[top : top + 16, 24:40] = 200
        pictures.append(picture)

    def find(picture: np.ndarray) -> np.ndarray:
        rows, columns = np.nonzero(picture[..., 0])
        table = np.zeros((1, app_models.MOST, 6), np.float32)
        table[0, 0] = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1, 0.9, 0
        return table

    card = ModelCard(task="detect", decoder="rows", labels=("person",))
    people = app_models.function_bundle(find, TensorSpec("rows", (1, app_models.MOST, 6)), card)
    seen = list[int]()
    sinks = {"page": Callback(lambda result: seen.append(result.sequence))}
    pytest.importorskip("av", reason="the extra video is not installed")
    run("counter.toml", {"door": app_models.Scenes(pictures)}, {"people": people}, sinks=sinks)
    events = lines(folder / "passed.jsonl")
    assert seen == list(range(14))
    assert [event["number"] for event in events] == [6]
    assert events[0]["results"]["visitors"][0]["track"] == 0
    assert Path(events[0]["clip"]).stat().st_size > 0


def test_plates_are_read_where_they_are_large(folder: Path) -> None:
    large = {"where": "width > 5 and score > 0.5", "margin": 0.0}
    app = read_app(FOLDER / "plates.toml")
    # The pictures of these tests are small.
    app = pipeline.App(app.streams, {**app.nodes, "text": _changed(app.nodes["text"], large)})
    ended = list[AppFrame]()
    scenes = app_models.Scenes([app_models.scene([(1, 1, 2), (3, 1, 4)]), app_models.scene([])])
    bundles = {"plates": app_models.detector(), "text": app_models.classifier()}
    with pipeline.load_app(app, sources={"gate": scenes}, bundles=bundles, on_frame=ended.append) as running:
        running.run()
    rows = lines(folder / "plates.jsonl")
    assert [[box["text"][0]["label"] for box in row["result"]] for row in rows] == [["level 2", "level 4"]]
    assert [frame.error for frame in ended] == [None, None]


def _changed(node: Any, changes: dict[str, Any]) -> Any:
    import msgspec

    return msgspec.structs.replace(node, **changes)


def find_hand(picture: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return 21 points around the bright part of a picture, the wrist below the middle finger, and if there is any."""
    rows, columns = np.nonzero(picture[..., 0] > 60)
    points = np.zeros((21, 3), np.float32)
    if not len(rows):
        return points.reshape(1, 63), np.zeros((1, 1), np.float32)
    left, top, right, bottom = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
    points[:, 0], points[:, 1] = np.linspace(left, right, 21), np.linspace(top, bottom, 21)
    points[0, :2], points[9, :2] = ((left + right) / 2, bottom), ((left + right) / 2, top)
    return points.reshape(1, 63), np.ones((1, 1), np.float32)


def test_palms_are_looked_for_where_no_hand_is_followed() -> None:
    pytest.importorskip("av", reason="the extra video is not installed")
    outputs = [TensorSpec("Identity", (1, 63)), TensorSpec("Identity_1", (1, 1))]
    hands = identity((224, 224, 3)).with_stage(find_hand, inputs=["y"], outputs=outputs, fresh=True)
    # A hand walks to the right; it is gone for a frame, and another one is there.
    pictures = [np.zeros((64, 64, 3), np.uint8) for _ in range(9)]
    for number, column in enumerate([16, 18, 20, 22, 24, None, 32, 34, 36]):
        if column is not None:
            pictures[number][32:40, column : column + 8] = 200
    ended = run("hands.toml", {"camera": app_models.Scenes(pictures)}, {"palms": detector("palm"), "hands": hands})
    # Also on the frame after the one on which it was lost.
    assert [number for number, frame in enumerate(ended) if "palms" in frame.results] == [0, 6]
    found = [frame.results["hands"] for frame in ended]
    assert [hand.tracks.tolist() for hand in found] == [[0]] * 5 + [[]] + [[1]] * 3
    for frame, hand in zip(ended, found, strict=True):
        if len(hand):
            left = np.nonzero(frame.picture[..., 0])[1].min()
            assert hand.corners()[0].min(axis=0) == pytest.approx([left, 32], abs=1.5)


def test_heavy_models_listen_only_where_somebody_speaks(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    silence, speech, wake = 0.0, 0.5, 0.9
    bundles = {
        "voice": scores_of({silence: 0, speech: 1, wake: 1}, ("silence", "voice")),
        "word": scores_of({speech: 0, wake: 1}, ("other", "wake")),
        "command": scores_of({wake: 1, speech: 0}, ("stop", "go")),
    }
    values = (silence, speech, wake, wake, silence, speech, wake)
    ended = run("wake.toml", {"microphone": Samples(*values)}, bundles)
    assert ["word" in frame.results for frame in ended] == [False, True, True, True, False, True, True]
    # Not again within two seconds.
    assert [frame.results["awake"] for frame in ended] == [False, False, True, False, False, False, True]
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["number"] for event in events] == [2, 6]
    assert [row["result"][0]["label"] for row in lines(folder / "commands.jsonl")] == ["go", "go"]


def test_three_cameras_have_their_own_pictures_and_tracks(folder: Path) -> None:
    pytest.importorskip("av", reason="the extra video is not installed")
    names = ("north", "south", "yard")
    sources = {name: walk(*[(column, 7)] * 15) for column, name in enumerate(names)}
    run("cameras.toml", sources, {"things": detector("car")})
    rows = lines(folder / "tracks.jsonl")
    assert Counter(row["stream"] for row in rows) == dict.fromkeys(names, 15)
    for name in names:
        assert [row["number"] for row in rows if row["stream"] == name] == list(range(15))
        assert [row["result"][0]["track"] for row in rows if row["stream"] == name][1:] == [0] * 14
        assert (folder / f"{name}.mp4").stat().st_size > 0
    # The zone begins at a tenth of the width at half of the height, and at the corner below.
    events = lines(folder / "arrivals.jsonl")
    assert sorted(event["stream"] for event in events) == ["north", "south", "yard"]
