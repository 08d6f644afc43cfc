from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from pipeline.errors import InputError, MissingExtra
from pipeline.observe import timeline
from pipeline.scheduler.trace import TraceEvent

PNG = b"\x89PNG\r\n\x1a\n"


def record(stage_ms: tuple[float, ...], frames: int) -> list[TraceEvent]:
    """Return the events of a pipeline of such stages, all frames being there at the start."""
    free = [100.0] * len(stage_ms)
    events = []
    for frame in range(frames):
        ready = 100.0
        for stage, milliseconds in enumerate(stage_ms):
            begin = max(ready, free[stage])
            ready = free[stage] = begin + milliseconds / 1e3
            events += [TraceEvent(f"s{stage}", frame, "queue", begin - 1e-3, begin)]
            events += [TraceEvent(f"s{stage}", frame, "run", begin, ready)]
    return events


def test_png_is_written_complete_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "timeline.png"
    timeline.draw(record((5, 9, 4), 40), path, title="three")
    assert path.read_bytes().startswith(PNG)
    assert list(path.parent.iterdir()) == [path]


def test_svg_is_xml_and_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    paths = [tmp_path / "a.svg", tmp_path / "b.SVG"]
    for path in paths:
        timeline.draw(record((5, 9), 40), str(path))
    assert ET.fromstring(paths[0].read_text()).tag.endswith("svg")
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_every_frame_shown_has_its_number() -> None:
    figure = timeline.build_figure(record((10, 10), 40), ["s0", "s1"], (100.05, 100.15), "numbers")
    texts = [text.get_text() for text in figure.axes[0].texts if text.get_text().isdigit()]
    # In 50 to 150 ms the first stage runs frames 5 to 14, the second the ones before.
    assert texts == [str(frame) for frame in (*range(5, 15), *range(4, 14))]


@pytest.mark.parametrize("name", ["timeline.jpg", "timeline", "png"])
def test_other_formats_are_refused_before_anything_is_drawn(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"must end in \.png or \.svg"):
        timeline.draw(record((1,), 3), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_no_event_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trace=Trace\(\)"):
        timeline.draw([TraceEvent("a", 0, "queue", 1.0, 2.0)], tmp_path / "timeline.png")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"pip install .*'matplotlib<"):
        timeline.draw(record((1,), 3), tmp_path / "timeline.png")


def test_a_hand_over_of_microseconds_is_no_copy_in_the_picture() -> None:
    events = [
        *record((10, 10), 40),
        TraceEvent("s1", 9, "copy", 100.1, 100.103),
        TraceEvent("s1", 10, "copy", 100.11, 100.11001),
    ]
    figure = timeline.build_figure(events, ["s0", "s1"], (100.05, 100.15), "copies")
    assert sum(patch.get_hatch() is not None for patch in figure.axes[0].patches) == 1


def test_stages_are_in_the_order_of_a_frame_whatever_the_record_begins_with() -> None:
    events = record((2, 2, 2), 6)
    later_events = [event for event in events if event.start > 100.003]
    assert timeline.stage_order(reversed(later_events)) == ["s0", "s1", "s2"]


def test_the_window_begins_when_the_pipeline_is_full() -> None:
    # The last of 2 stages has run 4 frames by then: 10 ms for the first to arrive, and 4 times 10 ms.
    begin, end = timeline.window(record((10, 10), 40), ["s0", "s1"], frames=20)
    assert (begin, end) == (pytest.approx(100.05), pytest.approx(100.25))


def test_few_frames_are_shown_from_the_start() -> None:
    begin, end = timeline.window(record((10, 10), 5), ["s0", "s1"], frames=20)
    assert (begin, end) == (pytest.approx(100.0), pytest.approx(100.06))


def test_waits_that_overlap_get_lanes_of_their_own() -> None:
    spans = [(0, 4), (1, 2), (2, 3), (3.5, 6), (4, 5)]
    waits = [TraceEvent("s", frame, "queue", start, end) for frame, (start, end) in enumerate(spans)]
    assert timeline.lanes(waits) == [0, 1, 1, 1, 0]
