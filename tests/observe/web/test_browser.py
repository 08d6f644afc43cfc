"""The page in a real browser: numbers that change, a phone's width, both colour schemes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pipeline.observe import web
from pipeline.observe.web.summary import png
from tests.support.browser import open_browser, open_page, until
from tests.support.streams import NAME, pipeline, streaming

pytest.importorskip("tornado")
DELIVERED = "Number(document.querySelector('#frames [data-name=delivered] td')?.textContent)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as browser:
        yield browser


LABEL = "<i>dog</i> 0.90"


def draw(_: Any, inputs: Any, outputs: Any) -> tuple[bytes, str]:
    """Return a picture of 320x240 and a line of text, as a frame's decoder does."""
    assert (inputs[0].shape, list(outputs)) == ((1, 1, 24, 32), ["scores"])
    return png(np.full((240, 320, 3), 90, np.uint8)), LABEL


@pytest.fixture(scope="module")
def server() -> Iterator[web.ViewServer]:
    with pipeline() as running, streaming(running), web.serve(running) as server:
        yield server


def look(browser: Any, server: web.ViewServer, **options: Any) -> Any:
    """Open the page and wait for its first numbers."""
    return open_page(browser, server.url, f"{DELIVERED} > 0", **options)


def test_numbers_change_while_a_stream_runs(browser: Any, server: web.ViewServer) -> None:
    page = look(browser, server)
    for _ in range(3):
        count = page.evaluate(DELIVERED)
        until(page, f"{DELIVERED} > {count}")
    until(page, "document.querySelector('#frame img')?.naturalWidth == 32")
    assert page.inner_text("#state") == "running"
    assert float(page.inner_text("#rate")) > 0
    assert float(page.inner_text("#median")) > 0
    assert page.locator("#graph [data-stage]").count() == 3
    busy = page.evaluate("[...document.querySelectorAll('#graph [data-stage]')].map((box) => Number(box.dataset.busy))")
    assert 0 < max(busy) <= 1
    assert page.locator("#graph .edge").count() == 5
    assert page.locator("#histogram .bar").count() > 1
    assert page.locator("#timeline .event").count() > 10
    assert page.locator("#frame td").count() == 5
    page.close()
    assert page.complaints == []
    assert all(each.startswith((server.url, "data:")) for each in page.addresses)


def test_a_decoded_frame_is_drawn_and_rates_have_a_history(browser: Any) -> None:
    with pipeline() as running, streaming(running), web.serve(running, draw=draw) as server:
        page = look(browser, server)
        until(page, "document.querySelector('#frame .result img')?.naturalWidth == 320")
        assert page.inner_text("#frame .result p") == LABEL
        # The picture is there once, without its labels above the model's own input.
        assert page.locator("#frame img").count() == 1
        until(page, "document.querySelector('#history polyline')?.points.length > 2")
        names = page.evaluate("[...document.querySelectorAll('#history > div')].map((box) => box.dataset.name)")
        assert names[:2] == ["frames_per_s", "latency_ms"]
        assert "frames/s" in page.text_content("#history [data-name=frames_per_s] text >> nth=0")
        page.close()
        assert page.complaints == []


def test_names_are_text_and_never_part_of_the_page(browser: Any, server: web.ViewServer) -> None:
    page = look(browser, server)
    assert page.inner_text("#model") == NAME
    assert page.locator("#model b").count() == 0
    page.close()


@pytest.mark.parametrize("width", [320, 390, 768, 1600])
def test_nothing_is_wider_than_the_screen(browser: Any, server: web.ViewServer, width: int) -> None:
    page = look(browser, server, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # At one moment, since each update draws them anew.
    boxes = page.evaluate(
        "[...document.querySelectorAll('#graph [data-stage]')].map((box) => box.getBoundingClientRect())"
    )
    assert len(boxes) == 3
    assert (len({box["left"] for box in boxes}) == 1) == (width < 1000)
    assert all(box["left"] >= 0 and box["right"] <= width for box in boxes)
    page.close()


def test_colours_follow_the_browsers_preference(browser: Any, server: web.ViewServer) -> None:
    colours = []
    for scheme in ("light", "dark"):
        page = look(browser, server, color_scheme=scheme)
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.close()
    assert colours == ["rgb(244, 245, 247)", "rgb(21, 24, 28)"]


def test_the_last_numbers_stay_when_the_server_goes(browser: Any) -> None:
    with pipeline() as running:
        server = web.serve(running)
        with streaming(running):
            page = look(browser, server)
        running.close()
        total = running.statistics().delivered
        server.close()
    until(page, "document.querySelector('#state').dataset.state == 'lost'")
    assert page.evaluate(DELIVERED) == total
    page.close()


def test_a_pipeline_without_a_trace_is_told_how_to_get_the_timeline(browser: Any) -> None:
    with pipeline(trace=False) as running, streaming(running), web.serve(running) as server:
        page = look(browser, server)
        assert "trace=pipeline.Trace" in page.inner_text("#timeline")
        page.close()
