"""Crops: complete, in order, with books that balance."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.app.app_frame import AppFrame
from pipeline.app.application import App
from pipeline.app.nodes import Model, SinkNode, Stream, Track
from pipeline.demo.detector import FILE
from pipeline.errors import AppError
from pipeline.io.results import Detections
from pipeline.io.sinks.base import Callback
from tests.support import app_models


def cascade(**crops: object) -> App:
    """Return an application of a detector and a classifier of its boxes."""
    return App(
        {"a": Stream(source="-")},
        {
            "squares": Model(file="-"),
            "levels": Model(file="-", reads=("squares",), for_each="boxes", **crops),  # type: ignore[arg-type]
        },
    )


def check(frame: AppFrame, squares: list[app_models.Square]) -> None:
    """Compare what was found of a frame with its squares."""
    result = frame.results["levels"]
    assert isinstance(result, Detections)
    expected = sorted((row, column, level) for column, row, level in squares)
    found = [
        (int(box[1]) // app_models.CELL, int(box[0]) // app_models.CELL, int(crop.classes[0]))
        for box, crop in zip(result.boxes, result.attributes.get("levels", ()), strict=True)
    ]
    assert sorted(found) == expected


def test_every_crop_of_every_frame_comes_back_to_its_box_in_order() -> None:
    generator, ended = np.random.default_rng(1), list[AppFrame]()
    scenes = [app_models.random_squares(generator, int(generator.integers(41))) for _ in range(300)]
    bundles = {"squares": app_models.detector(), "levels": app_models.classifier()}
    source = app_models.Scenes([app_models.scene(squares) for squares in scenes])
    with pipeline.load_app(cascade(), sources={"a": source}, bundles=bundles, on_frame=ended.append) as app:
        books = app.run()
    assert [frame.index for frame in ended] == list(range(300))
    for frame, squares in zip(ended, scenes, strict=True):
        check(frame, squares)
    assert (books["a"].taken, books["a"].delivered, books["a"].in_flight) == (300, 300, 0)
    crops = app.crop_books.snapshot()["levels"]
    assert crops.taken == crops.delivered == sum(map(len, scenes))


def test_at_most_so_many_crops_of_a_frame_run_the_best_ones() -> None:
    squares = [(column, 0, column) for column in range(8)]
    ended = list[AppFrame]()
    bundles = {"squares": app_models.detector(), "levels": app_models.classifier()}
    source = app_models.Scenes([app_models.scene(squares)])
    with pipeline.load_app(cascade(most=3), sources={"a": source}, bundles=bundles, on_frame=ended.append) as app:
        app.run()
    check(ended[0], squares[:3])


def test_a_crop_that_fails_ends_its_frame_and_no_other() -> None:
    generator, ended = np.random.default_rng(2), list[AppFrame]()
    scenes = [app_models.random_squares(generator, 4) for _ in range(100)]
    failing = app_models.fail_every(37, app_models.measure_level)
    bundles = {"squares": app_models.detector(), "levels": app_models.classifier(failing)}
    source = app_models.Scenes([app_models.scene(squares) for squares in scenes])
    with pipeline.load_app(cascade(), sources={"a": source}, bundles=bundles, on_frame=ended.append) as app:
        books = app.run()["a"]
    assert [frame.index for frame in ended] == list(range(100))
    failed = [frame for frame in ended if frame.error is not None]
    assert books.failed == len(failed) == 10
    assert books.delivered == 90
    for frame, squares in zip(ended, scenes, strict=True):
        if frame.error is None:
            check(frame, squares)
    crops = app.crop_books.snapshot()["levels"]
    assert (crops.taken, crops.failed, crops.in_flight) == (400, 10, 0)


def test_the_first_failure_ends_the_application_if_it_shall() -> None:
    failing = app_models.fail_every(5, app_models.measure_level)
    bundles = {"squares": app_models.detector(), "levels": app_models.classifier(failing)}
    source = app_models.Scenes([app_models.scene([(0, 0, 1)])] * 1000)
    app = pipeline.load_app(cascade(), sources={"a": source}, bundles=bundles, on_error="stop")
    with app, pytest.raises(pipeline.errors.StageError):
        app.run()
    books = app.statistics()["a"]
    assert books.failed >= 1
    assert books.in_flight == 0
    assert books.taken < 1000


def test_threads_that_submit_get_their_places_in_turn_and_are_told_of_the_end() -> None:
    bundles = {"squares": app_models.detector(), "levels": app_models.classifier()}
    picture = app_models.scene([(1, 1, 1)])
    app = pipeline.load_app(cascade(), sources={"a": None}, bundles=bundles)

    def submit() -> None:
        for number in range(50):
            app.submit("a", app_models.frame(number, picture))

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    app.close()
    assert app.statistics()["a"].delivered == 200
    with pytest.raises(pipeline.errors.PipelineClosed):
        app.submit("a", app_models.frame(0, picture))


def test_tracks_and_attributes_reach_the_sink_together() -> None:
    app = App(
        {"a": Stream(source="-")},
        {
            "squares": Model(file="-"),
            "things": Track(reads=("squares",)),
            "levels": Model(file="-", reads=("things",), for_each="boxes"),
            "out": SinkNode(to="-", reads=("levels",)),
        },
    )
    lines = list[object]()
    bundles = {"squares": app_models.detector(), "levels": app_models.classifier()}
    source = app_models.Scenes([app_models.scene([(1, 1, 4)])] * 5)
    sink = Callback(lambda result: lines.append(result.result.facts()))  # type: ignore[union-attr]
    with pipeline.load_app(app, sources={"a": source}, bundles=bundles, sinks={"out": sink}) as running:
        running.run()
    assert [line[0]["track"] for line in lines] == [-1, 0, 0, 0, 0]  # type: ignore[index]
    assert all(line[0]["levels"][0]["label"] == "level 4" for line in lines)  # type: ignore[index]


def test_a_frame_that_a_model_is_not_run_on_overtakes_none_that_it_is() -> None:
    def slow(picture: np.ndarray) -> np.ndarray:
        time.sleep(0.005)
        return app_models.find_squares(picture)

    app, ended = App({"a": Stream(source="-")}, {"squares": Model(file="-", when="every(3)")}), list[AppFrame]()
    source = app_models.Scenes([app_models.scene([(0, 0, 1)])] * 60)
    bundles = {"squares": app_models.detector(slow)}
    with pipeline.load_app(app, sources={"a": source}, bundles=bundles, on_frame=ended.append) as running:
        running.run()
    assert [frame.index for frame in ended] == list(range(60))
    assert ["squares" in frame.results for frame in ended] == [number % 3 == 0 for number in range(60)]


def test_functions_of_a_file_have_to_be_allowed_and_those_of_a_program_need_not(tmp_path: Path) -> None:
    file = tmp_path / "app.toml"
    file.write_text('[stream.a]\nsource = "-"\n[function.joined]\ncall = "posixpath:join"\nreads = "a"\n')
    with pytest.raises(AppError, match=r"'posixpath:join' is code; allow that by --allow-commands"):
        pipeline.load_app(file, sources={"a": None}, allow_commands=False)
    functions = {"posixpath:join": lambda frame: frame.index}
    for options in ({"functions": functions, "allow_commands": False}, {}):
        pipeline.load_app(file, sources={"a": None}, **options).close()  # type: ignore[arg-type]


def test_what_is_wrong_with_a_model_is_said_with_its_name() -> None:
    app = App({"a": Stream(source="-")}, {"squares": Model(file=str(FILE), board="nowhere")})
    with pytest.raises(AppError, match="model 'squares': unknown board 'nowhere'; known are host"):
        pipeline.load_app(app, sources={"a": None})
