from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

import boards
import pipeline
from pipeline import cli
from pipeline.demo import network, stream
from pipeline.errors import InputError
from pipeline.measure.profile import profile
from tests.support.sampling import QUICK


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[stream.DemoResult, str]:
    """Return the result of a short demo, and the text about it."""
    pytest.importorskip("tvm")
    pytest.importorskip("sklearn")
    _measure_quickly(tmp_path_factory.mktemp("network"))
    path, console = tmp_path_factory.mktemp("demo") / "timeline.svg", Console(file=io.StringIO())
    result = stream.run(path, frames=48)
    stream.show(result, console)
    assert list(path.parent.iterdir()) == [path]
    assert isinstance(console.file, io.StringIO)
    return result, console.file.getvalue()


@pytest.mark.usefixtures("demo")
def test_the_command_prints_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "timeline.svg"
    assert cli.main(["demo", "--frames", "8", "--output", str(path)]) == 0
    text = capsys.readouterr().out
    assert "8 frames of 10 handwritten digits" in text
    assert f"Timeline: {path}" in text


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
    for expected in ("unsplit, 1 core", "pipeline of 2 stages", "times the frames", "Largest difference"):
        assert expected in text
    assert f"Timeline: {result.picture}" in text


@pytest.mark.parametrize(("name", "frames"), [("timeline.jpg", None), ("timeline.png", 0)])
def test_a_wrong_wish_is_refused_before_anything_is_built(tmp_path: Path, name: str, frames: int | None) -> None:
    with pytest.raises(InputError):
        stream.run(tmp_path / name, frames=frames)
