from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest

import boards
import pipeline
from pipeline import cli
from pipeline.demo import network, stream
from pipeline.errors import InputError
from pipeline.measure.profile import profile
from tests.support.sampling import QUICK


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[stream.DemoResult, str]:
    """Return the result of a short demo by its command, and what that prints."""
    pytest.importorskip("tvm")
    pytest.importorskip("sklearn")
    _measure_quickly(tmp_path_factory.mktemp("network"))
    path, results = tmp_path_factory.mktemp("demo") / "timeline.svg", []

    def note_result(*arguments: Any) -> stream.DemoResult:
        results.append(run_demo(*arguments))
        return results[-1]

    run_demo = stream.run
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as output:
        patch.setattr(stream, "run", note_result)
        assert cli.main(["demo", "--frames", "48", "--output", str(path)]) == 0
    assert list(path.parent.iterdir()) == [path]
    return results[0], output.getvalue()


def _measure_quickly(folder: Path) -> None:
    """Put times into the session's cache that the demo would measure for a quarter of a minute."""
    network.save_with_batch(folder / network.FILE.name, stream.BATCH)
    profile(pipeline.read(folder / network.FILE.name), boards.get("host"), sampling=QUICK)


@pytest.fixture
def result(demo: tuple[stream.DemoResult, str]) -> stream.DemoResult:
    return demo[0]


def test_all_sides_answer_the_same(result: stream.DemoResult) -> None:
    assert all(variant.accuracy == result.pipelined.accuracy >= 0.95 for variant in result.unsplit)
    assert result.unsplit[0].name == "unsplit, 1 core"
    assert result.largest_difference <= 1e-5 * result.largest_value
    assert result.frames == 48


def test_the_ratio_is_that_of_the_paces(result: stream.DemoResult) -> None:
    variant = result.unsplit[0]
    assert result.ratio(variant) == pytest.approx(result.pipelined.frames_per_s / variant.frames_per_s)


def test_the_picture_is_there(result: stream.DemoResult) -> None:
    assert "<svg" in result.picture.read_text()[:1000]


def test_what_is_printed(demo: tuple[stream.DemoResult, str]) -> None:
    result, text = demo
    for expected in (
        "48 frames of 10 handwritten digits",
        "unsplit, 1 core",
        "pipeline of 2 stages",
        "times the frames",
        "Largest difference",
    ):
        assert expected in text
    assert f"Timeline: {result.picture}" in text


@pytest.mark.parametrize(("name", "frames"), [("timeline.jpg", None), ("timeline.png", 0)])
def test_a_wrong_wish_is_refused_before_anything_is_built(tmp_path: Path, name: str, frames: int | None) -> None:
    with pytest.raises(InputError):
        stream.run(tmp_path / name, frames=frames)
