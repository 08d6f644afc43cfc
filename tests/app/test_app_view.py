"""The live page of an application: what it says, and how it looks in a real browser."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.app.app_view import AppView
from pipeline.app.application import App
from pipeline.app.nodes import Model, SinkNode, Stream, Track, Trigger
from pipeline.app.running_app import RunningApp
from pipeline.io.sinks.base import Callback
from pipeline.io.source_frame import SourceFrame
from pipeline.io.sources.base import FrameSource
from pipeline.observe import web
from tests.support import app_models
from tests.support.browser import open_browser, open_page, until

NAMES = ("north", "yard")
WALK = [app_models.scene([(column, 4, 5), (6, 6, 2)]) for column in (*range(8), *range(6, 0, -1))]


def application() -> App:
    """Return two streams whose squares are tracked and classified; a trigger fires when one is at the right."""
    return App(
        {name: Stream(source="-") for name in NAMES},
        {
            "squares": Model(file="squares.onnx"),
            "tracks": Track(reads=("squares",), method="iou"),
            "levels": Model(file="levels.onnx", reads=("tracks",), for_each="boxes", where="inside(right)"),
            "arrived": Trigger(reads=("tracks",), when="any(tracks, inside(right) and y < 40)"),
            "out": SinkNode(to="-", reads=("levels",)),
        },
        zones={"right": ((0.5, 0.0), (1.0, 0.0), (1.0, 1.0), (0.5, 1.0))},
        name="<i>Yard</i>",
    )


class Endless(FrameSource):
    """A square that walks up and down until it is stopped."""

    owns_memory = live = True

    def __init__(self, stopped: threading.Event, pictures: Any = None) -> None:
        self._stopped, self._pictures = stopped, pictures or WALK

    def __iter__(self) -> Iterator[SourceFrame]:
        for number, picture in enumerate(itertools.cycle(self._pictures)):
            if self._stopped.wait(0.02):
                return
            yield app_models.frame(number, picture)


def load(app: App, sources: dict[str, Any]) -> RunningApp:
    """Load the application with models whose answers are known."""
    bundles = {"squares": app_models.detector(), "levels": app_models.classifier()}
    return pipeline.load_app(app, sources=sources, bundles=bundles, sinks={"out": Callback(lambda _: None)})


@contextmanager
def serving() -> Iterator[web.ViewServer]:
    """Serve the page of the application at work."""
    pytest.importorskip("tornado")
    stopped, app = threading.Event(), application()
    with load(app, {name: Endless(stopped) for name in NAMES}) as running, web.ViewServer() as server:
        server.watch(AppView(running))
        thread = threading.Thread(target=running.run)
        thread.start()
        try:
            yield server
        finally:
            stopped.set()
            thread.join()


def test_an_update_tells_streams_with_pictures_and_triggers_and_nodes_with_rates() -> None:
    pytest.importorskip("PIL")
    with load(application(), {name: app_models.Scenes(WALK) for name in NAMES}) as running:
        view = AppView(running)
        view.update()
        running.run()
        update = view.update()
        view.close()
    assert (update["model"], update["state"]) == ("<i>Yard</i>", "closed")
    for stream in update["streams"]:
        assert stream["ends"] == {"delivered": 14}
        # Once on each way to the right.
        assert [(trigger["name"], trigger["count"]) for trigger in stream["triggers"]] == [("arrived", 1)]
        assert stream["picture"].startswith("data:image/jpeg;base64,")
        # Also the square at the left, which the condition of the classifier leaves out.
        assert "tracks: square 0.99 [8 32 16 40]" in stream["text"]
        assert "levels: square" in stream["text"]
        assert [shape["name"] for shape in stream["shapes"]] == ["right"]
    nodes = {node["name"]: node for node in update["nodes"]}
    assert {name: node["kind"] for name, node in nodes.items()} == {
        "north": "stream", "yard": "stream", "squares": "model", "tracks": "track", "levels": "model",
        "arrived": "trigger", "out": "sink",
    }  # fmt: skip
    assert nodes["squares"]["per_s"] == pytest.approx(2 * nodes["north"]["per_s"])
    assert nodes["squares"]["crops_per_s"] is None
    assert nodes["levels"]["crops_per_s"] > 0
    assert ["tracks", "levels"] in update["edges"]


def test_a_frame_that_fails_is_told_with_its_picture() -> None:
    pytest.importorskip("PIL")

    def fail(_: np.ndarray) -> np.ndarray:
        raise RuntimeError("no squares today")

    app = App({"north": Stream(source="-")}, {"squares": Model(file="-")})
    sources, bundles = {"north": app_models.Scenes(WALK[:1])}, {"squares": app_models.detector(fail)}
    with pipeline.load_app(app, sources=sources, bundles=bundles) as running:
        view = AppView(running)
        running.run()
        stream = view.update()["streams"][0]
    assert stream["ends"] == {"delivered": 0, "failed": 1}
    assert "no squares today" in stream["error"]
    assert stream["picture"]


def test_zones_in_pixels_are_shares_on_the_page() -> None:
    pytest.importorskip("PIL")
    zones = {"left": ((0, 0), (32, 0), (32, 64))}
    trigger = Trigger(reads=("squares",), when="any(squares, inside(left))")
    app = App({"north": Stream(source="-")}, {"squares": Model(file="-"), "seen": trigger}, zones=zones)
    sources, bundles = {"north": app_models.Scenes(WALK[:1])}, {"squares": app_models.detector()}
    with pipeline.load_app(app, sources=sources, bundles=bundles) as running:
        view = AppView(running)
        running.run()
        shapes = view.update()["streams"][0]["shapes"]
    assert shapes == [{"name": "left", "zone": True, "points": [[0, 0], [0.5, 0], [0.5, 1]]}]


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_a_browser_shows_streams_side_by_side_and_the_graph(width: int) -> None:
    with serving() as server, open_browser() as browser:
        page = open_page(
            browser,
            server.url,
            "[...document.querySelectorAll('.stream img')].filter((image) => image.naturalWidth).length == 2",
            viewport={"width": width, "height": 800},
        )
        until(page, "document.querySelectorAll('.trigger.lit').length > 0")
        assert page.inner_text("#model") == "<i>Yard</i>"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = page.evaluate("[...document.querySelectorAll('.stream')].map((box) => box.getBoundingClientRect())")
        assert (boxes[0]["top"] == boxes[1]["top"]) == (width > 600)
        assert page.locator("#nodes [data-node]").count() == 7
        assert page.locator("#nodes .edge").count() == 6
        nodes = page.evaluate("[...document.querySelectorAll('[data-node]')].map((box) => box.getBoundingClientRect())")
        assert all(box["left"] >= 0 and box["right"] <= width for box in nodes)
        # Those of a pipeline alone are not there.
        assert not page.is_visible("#histogram")
        assert page.locator("polygon.zone").count() == 2
        page.close()
        assert page.complaints == []
        assert all(each.startswith((server.url, "data:")) for each in page.addresses)
